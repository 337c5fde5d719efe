"""SSM: parameters, public ones that name images and the account's own, and one automation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.faults.cloud import automation
from tests.faults.cloud.ec2_places import IMAGES, image_id
from tests.faults.cloud.filters import is_like
from tests.faults.cloud.refusal import Refused
from tests.faults.cloud.service import Service, tag_map
from tests.faults.cloud.things import Json, tag_list


@dataclass
class Parameter:
    name: str
    value: str
    type: str
    tags: dict[str, str]
    changed_at: datetime
    version: int = 1

    def describe(self) -> Json:
        return {
            "Name": self.name,
            "Type": self.type,
            "Version": self.version,
            "LastModifiedDate": self.changed_at,
        }


class Ssm(Service):
    def get_parameter(self, *, Name: str, WithDecryption: bool = False) -> Json:
        if Name in IMAGES:
            value = image_id(Name, self._region.name)
            return {"Parameter": {"Name": Name, "Type": "String", "Value": value, "Version": 1}}
        return {"Parameter": self._shown(self._parameter(Name), WithDecryption)}

    def get_parameters_by_path(
        self, *, Path: str, Recursive: bool = False, WithDecryption: bool = False
    ) -> Json:
        root = Path.rstrip("/") + "/"
        found = [
            parameter
            for parameter in self._region.parameters.values()
            if parameter.name.startswith(root)
            and (Recursive or "/" not in parameter.name.removeprefix(root))
        ]
        return {"Parameters": [self._shown(parameter, WithDecryption) for parameter in found]}

    def describe_parameters(self, *, ParameterFilters: Iterable[Any] = ()) -> Json:
        found = [p for p in self._region.parameters.values() if _passes(p, ParameterFilters)]
        return {"Parameters": [parameter.describe() for parameter in found]}

    def put_parameter(
        self,
        *,
        Name: str,
        Value: str,
        Type: str = "String",
        Overwrite: bool = False,
        Description: str = "",
        Tags: Iterable[Any] = (),
        Tier: str = "Standard",
        KeyId: str = "",
    ) -> Json:
        if Name.strip("/").lower().startswith(("aws", "ssm")):
            raise Refused("AccessDeniedException", f"No access to reserved parameter name: {Name}")
        present, now = self._region.parameters.get(Name), self._account.timeline.time()
        if present is not None and not Overwrite:
            raise Refused(
                "ParameterAlreadyExists",
                "The parameter already exists. To overwrite this value, set the overwrite option.",
            )
        tags = present.tags if present else tag_map(Tags)
        version = present.version + 1 if present else 1
        self._region.parameters[Name] = Parameter(Name, Value, Type, tags, now, version)
        return {"Version": version, "Tier": Tier}

    def delete_parameter(self, *, Name: str) -> Json:
        self._parameter(Name)
        del self._region.parameters[Name]
        return {}

    def delete_parameters(self, *, Names: Sequence[str]) -> Json:
        gone = [name for name in Names if self._region.parameters.pop(name, None)]
        return {
            "DeletedParameters": gone,
            "InvalidParameters": [name for name in Names if name not in gone],
        }

    def add_tags_to_resource(
        self, *, ResourceType: str, ResourceId: str, Tags: Iterable[Any]
    ) -> Json:
        self._parameter(ResourceId).tags |= tag_map(Tags)
        return {}

    def list_tags_for_resource(self, *, ResourceType: str, ResourceId: str) -> Json:
        return {"TagList": tag_list(self._parameter(ResourceId).tags)}

    def start_automation_execution(self, **asked: Any) -> Json:
        started = automation.start(self._account, self._region.name, asked)
        return {"AutomationExecutionId": started}

    def _parameter(self, name: str) -> Parameter:
        parameter = self._region.parameters.get(name)
        if parameter is None:
            raise Refused("ParameterNotFound", f"Parameter {name} not found.")
        return parameter

    def _shown(self, parameter: Parameter, decrypted: bool) -> Json:
        secret = parameter.type == "SecureString" and not decrypted
        return parameter.describe() | {"Value": "kms:model" if secret else parameter.value}


def _passes(parameter: Parameter, filters: Iterable[Any]) -> bool:
    for each in filters:
        key, option, values = each["Key"], each.get("Option", "Equals"), each.get("Values", ())
        if key.startswith("tag:"):
            actual = parameter.tags.get(key[4:])
            if actual is None or (values and not is_like(actual, values)):
                return False
        elif key in ("Name", "Path"):
            begins = option != "Equals"
            if not any(
                parameter.name.startswith(v) if begins else parameter.name == v for v in values
            ):
                return False
        else:
            raise Refused("InvalidFilterKey", f"The model knows no filter {key}")
    return True
