#!/usr/bin/env python3
"""Makes src/steadfast/v1 of the server's .proto files.

    pip install -r requirements-generate.txt
    python generate.py

The result is checked in; a test makes it again and wants the same files.
"""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROTO = HERE.parent.parent / "crates" / "api" / "proto"
# Code of a newer one asks for newer versions of grpcio and protobuf wherever the package is installed.
VERSION = "1.76.0"


def generate(into: Path) -> None:
    """Writes steadfast/v1 below `into`."""
    from importlib.metadata import version

    from grpc_tools import protoc

    if version("grpcio-tools") != VERSION:
        sys.exit(f"grpcio-tools {VERSION} is needed, not {version('grpcio-tools')}: see requirements-generate.txt")
    files = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    arguments = [f"--{kind}_out={into}" for kind in ("python", "pyi", "grpc_python")]
    if protoc.main(["protoc", f"--proto_path={PROTO}", *arguments, *files]) != 0:
        sys.exit("protoc has failed")
    (into / "steadfast" / "v1" / "__init__.py").write_text(
        '"""Made of the .proto files by generate.py; the contract on the wire."""\n'
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=HERE / "src")
    generate(parser.parse_args().into)
