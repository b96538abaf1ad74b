"""Runs under boto3's interpreter, not under pytest: does one thing with boto3 and prints what came of it as JSON.

`python boto_calls.py URL NAME` does the thing of that name; see CALLS.
"""

import json
import os
import sys
import time
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError

ROW = b"5.1,3.5,1.4,0.2"


def client(url: str | None, secret: str = "any secret", mode: str = "standard", region: str = "us-east-1") -> Any:
    """A runtime client with dummy credentials, or those of the test's signer."""
    return boto3.client(
        "sagemaker-runtime",
        endpoint_url=url,
        region_name=region,
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key=secret,
        config=Config(retries={"mode": mode}, connect_timeout=5, read_timeout=20),
    )


def told(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer as JSON can hold it."""
    shown = {key: value for key, value in answer.items() if key not in ("ResponseMetadata", "Body")}
    metadata = answer["ResponseMetadata"]
    shown |= {"status": metadata["HTTPStatusCode"], "has_id": bool(metadata["RequestId"])}
    if hasattr(answer.get("Body"), "read"):
        shown["Body"] = answer["Body"].read().decode()
    return shown


def invoke(url: str, **more: Any) -> dict[str, Any]:
    """invoke_endpoint with a row of CSV, unless told otherwise."""
    given = {"EndpointName": "iris_kmeans", "Body": ROW, "ContentType": "text/csv"} | more
    given = {key: value for key, value in given.items() if value is not None}
    return told(client(url).invoke_endpoint(**given))


def everything(url: str) -> dict[str, Any]:
    """Every argument that the API has, at once."""
    return invoke(
        url,
        Accept="application/jsonlines",
        CustomAttributes="trace=abc",
        TargetVariant="AllTraffic",
        TargetContainerHostname="primary",
        InferenceId="i-1",
        EnableExplanations="`false`",
        SessionId="NEW_SESSION",
    )


def from_environment(url: str) -> dict[str, Any]:
    """The address from the variable that programs which cannot be changed are given."""
    os.environ["AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME"] = url
    return told(client(None).invoke_endpoint(EndpointName="iris_kmeans", Body=ROW, ContentType="text/csv"))


def stream(url: str) -> dict[str, Any]:
    """The parts of a streamed answer."""
    answer = client(url).invoke_endpoint_with_response_stream(
        EndpointName="echo", Body=b"[[1.5], [2.5]]", ContentType="application/json"
    )
    parts = [event["PayloadPart"]["Bytes"].decode() for event in answer["Body"]]
    return {"parts": parts, **told(answer)}


def broken_stream(url: str) -> dict[str, Any]:
    """What a stream gives before it breaks, and how that shows."""
    answer = client(url).invoke_endpoint_with_response_stream(EndpointName="stream", Body=b"1")
    parts: list[str] = []
    try:
        parts.extend(event["PayloadPart"]["Bytes"].decode() for event in answer["Body"])
    except EventStreamError as error:
        return {"parts": parts, "code": error.response["Error"]["Code"], "message": error.response["Error"]["Message"]}
    return {"parts": parts}


def defer(url: str) -> dict[str, Any]:
    """invoke_endpoint_async by location."""
    return told(
        client(url).invoke_endpoint_async(
            EndpointName="iris_kmeans",
            InputLocation="s3://bucket/row.csv",
            ContentType="text/csv",
            Accept="text/csv",
            InferenceId="mine",
        )
    )


def signed(url: str, secret: str) -> dict[str, Any]:
    """A call that a secret has signed, with every header that is signed along."""
    try:
        answer = client(url, secret).invoke_endpoint(
            EndpointName="signed", Body=ROW, ContentType="text/csv", Accept="text/csv", CustomAttributes="a=b"
        )
    except ClientError as error:
        return refusal(error)
    return told(answer)


def refusal(error: ClientError) -> dict[str, Any]:
    """An error as its catcher sees it."""
    metadata = error.response["ResponseMetadata"]
    members = {key: value for key, value in error.response.items() if key not in ("ResponseMetadata", "Error")}
    return {
        "kind": type(error).__name__,
        "code": error.response["Error"]["Code"],
        "message": error.response["Error"]["Message"],
        "status": metadata["HTTPStatusCode"],
        "members": members,
    }


def fail(url: str, mode: str = "standard", **more: Any) -> dict[str, Any]:
    """The error of a call that must fail, and how often it was tried."""
    tries = []
    runtime = client(url, mode=mode)
    runtime.meta.events.register("before-send.sagemaker-runtime.*", lambda **_: tries.append(1))
    given = {"EndpointName": "iris_kmeans", "Body": ROW, "ContentType": "text/csv"} | more
    try:
        runtime.invoke_endpoint(**given)
    except ClientError as error:
        return {"tries": len(tries), **refusal(error)}
    return {"tries": len(tries)}


ARN = "arn:aws:sagemaker:us-east-1:123456789012:endpoint/iris_kmeans"

CALLS = {
    "plain": invoke,
    "bare": lambda url: invoke(url, ContentType=None),
    "text": lambda url: invoke(url, Body=ROW.decode()),
    "everything": everything,
    "arn": lambda url: invoke(url, EndpointName=ARN),
    "prefix": lambda url: invoke(f"{url}/services/iris_kmeans"),
    "from_environment": from_environment,
    "stream": stream,
    "broken_stream": broken_stream,
    "defer": defer,
    "signed": lambda url: signed(url, "a well kept secret"),
    "missigned": lambda url: signed(url, "a wrong secret"),
    "unknown": lambda url: fail(url, EndpointName="ghost"),
    "variant": lambda url: fail(url, TargetVariant="nope"),
    "target_model": lambda url: fail(url, TargetModel="m.tar.gz"),
    "wide": lambda url: fail(url, Body=b"1,2,3"),
    "type": lambda url: fail(url, ContentType="application/xml"),
    "accept": lambda url: fail(url, Accept="text/html"),
}


def main() -> None:
    """Do each thing that the command line names; a name with a mode, as `Error:legacy`, is an endpoint that fails."""
    url, *names = sys.argv[1:]
    time.sleep = lambda seconds: None  # what boto3 waits between tries
    results = {}
    for name in names:
        endpoint, _, mode = name.partition(":")
        results[name] = fail(url, mode, EndpointName=endpoint) if mode else CALLS[name](url)
    json.dump(results, sys.stdout)


main()
