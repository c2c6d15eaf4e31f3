"""Checks Kubernetes manifests against the schemas of Kubernetes: manifests.py FILE..."""

import sys
import xml.etree.ElementTree

import kubernetes_validate
import yaml

# Oldest and newest version that the manifests are meant for.
VERSIONS = ("1.25", kubernetes_validate.latest_version())

checked = 0
for file in sys.argv[1:]:
    with open(file) as stream:
        resources = [resource for resource in yaml.safe_load_all(stream) if resource]
    for resource in resources:
        for version in VERSIONS:
            kubernetes_validate.validate(resource, version, strict=True)
        name = f"{resource['kind']}/{resource['metadata']['name']}"
        if resource["kind"] == "ConfigMap":
            for entry, text in resource["data"].items():
                keys = [item.findtext("name") for item in xml.etree.ElementTree.fromstring(text)]
                assert keys and all(keys), f"{name}: {entry} has a property without a name"
        checked += 1
        print(f"{name}: valid for Kubernetes {' and '.join(VERSIONS)}")
assert checked > 0, "no manifest was given"
