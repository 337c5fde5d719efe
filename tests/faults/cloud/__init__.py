"""A fast model of the AWS that this project uses, for searches over thousands of lives of runs.

Its clients look like boto3's. contract_test.py holds it to what strict moto, and AWS, do.
"""

from tests.faults.cloud.client import Call
from tests.faults.cloud.instance import Instance
from tests.faults.cloud.model import ModelCloud
from tests.faults.cloud.settings import ModelRules

__all__ = ["Call", "Instance", "ModelCloud", "ModelRules"]
