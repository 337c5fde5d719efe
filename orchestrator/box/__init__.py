"""What runs on a box: stdlib and boto3, nothing else of ours."""
