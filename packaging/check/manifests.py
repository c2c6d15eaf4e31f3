"""Checks Kubernetes manifests against the schemas of Kubernetes: manifests.py FILE..."""

import sys
import xml.etree.ElementTree

import kubernetes_validate
import yaml

# Oldest and newest version that the manifests are meant for.
VERSIONS = ("1.25", kubernetes_validate.latest_version())


def check_host_names(resources):
    """Checks that DataNodes give themselves names that other pods can resolve: WebHDFS redirects to them."""
    named = {(resource["kind"], resource["metadata"]["name"]): resource for resource in resources}
    datanode = named["StatefulSet", "hearth-datanode"]
    service, namespace = datanode["spec"]["serviceName"], datanode["metadata"]["namespace"]
    site = xml.etree.ElementTree.fromstring(named["ConfigMap", "hearth"]["data"]["hdfs-site.xml"])
    values = {item.findtext("name"): item.findtext("value") for item in site}
    expected = f"${{env.POD_NAME}}.{service}.{namespace}.svc.cluster.local"
    assert values["dfs.datanode.hostname"] == expected, values["dfs.datanode.hostname"]
    environment = datanode["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}} in environment, environment
    headless = named["Service", service]["spec"]
    assert headless["clusterIP"] == "None" and headless["publishNotReadyAddresses"] is True, headless


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
    check_host_names(resources)
assert checked > 0, "no manifest was given"
