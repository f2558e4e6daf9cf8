#!/bin/sh
# Checks the chart and the plain manifests: helm lint, helm template, and kubeconform with schemas made from the Go module k8s.io/api.
#
#   deploy/helm/check.sh [--write]        (--write: make deploy/kubernetes/agiledart.yaml anew)
#
# Needs go, and in PATH helm and kubeconform, which Go builds:
#   go install helm.sh/helm/v3/cmd/helm@latest github.com/yannh/kubeconform/cmd/kubeconform@latest
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
plain=../kubernetes/agiledart.yaml
render() { helm template agiledart agiledart --kube-version 1.35.0 "$@"; }

{
    echo "# Made from the chart by deploy/helm/check.sh --write. Put the address of your registry in place of REGISTRY."
    echo "# The token:  kubectl create secret generic agiledart-join-token --from-file=join-token=join.token"
    render --set token.existingSecret=agiledart-join-token --set image.repository=REGISTRY/agiledart
} >"$work/plain.yaml"
if [ "${1:-}" = --write ]; then cp "$work/plain.yaml" "$plain"; fi
cmp "$work/plain.yaml" "$plain" || { echo "the chart has changed: deploy/helm/check.sh --write" >&2; exit 1; }

helm lint --quiet agiledart --set token.value=adart1x
(cd schemas && go run . "$work")
render --set token.value=adart1x --set podMonitor.enabled=true --set executors=2 >"$work/all.yaml"
# A PodMonitor is a kind of the Prometheus operator, so k8s.io/api has no type of it.
kubeconform -strict -summary -skip PodMonitor -schema-location "$work/{{.ResourceKind}}{{.KindSuffix}}.json" "$work/all.yaml" "$plain"
