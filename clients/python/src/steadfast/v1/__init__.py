"""Made of the .proto files by generate.py; the contract on the wire."""
