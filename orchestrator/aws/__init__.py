"""The only importer of boto3 on the controller."""
