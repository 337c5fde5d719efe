"""CreateFunction as Lambda answers it: with a role that it can assume."""

from __future__ import annotations

import base64
import io
import zipfile
from typing import Any

from moto.awslambda.exceptions import InvalidParameterValueException
from moto.awslambda.models import LambdaBackend

from orchestrator.localcloud.rules import identity
from orchestrator.localcloud.rules.patches import Patches
from orchestrator.localcloud.rules.settings import StrictRules

SERVICE = "lambda.amazonaws.com"


def install(patches: Patches, rules: StrictRules) -> None:
    patches.replace(LambdaBackend, "create_function", lambda stock: _create(stock, rules))


def _create(stock: Any, rules: StrictRules) -> Any:
    def create_function(self: Any, spec: dict[str, Any]) -> Any:
        role = identity.role_by_arn(self.account_id, self.region_name, spec["Role"])
        if role is None or not identity.can_be_assumed(role, SERVICE, rules):
            raise InvalidParameterValueException(
                "The role defined for the function cannot be assumed by Lambda."
            )
        _check_handler(spec)
        return stock(self, spec)

    return create_function


def _check_handler(spec: dict[str, Any]) -> None:
    """Lambda takes any zip and fails at the first call; a rehearsal must fail at once."""
    package = spec["Code"].get("ZipFile")
    if package is None:
        return
    data = package if isinstance(package, bytes) else base64.b64decode(package)
    names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    wanted = spec["Handler"].rpartition(".")[0].replace(".", "/") + ".py"
    if wanted not in names:
        raise InvalidParameterValueException(f"The package has no {wanted}.")
