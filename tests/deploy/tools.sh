#!/bin/sh
# Puts the tools of these tests into .cache/tools, each from its registry, in the versions below. What
# can't be had here is told; the tests that need it are skipped, and say so. `make tools` calls this.
set -u
cd "$(dirname "$0")/../.." || exit 1
tools=$PWD/.cache/tools
PATH=$PATH:/usr/local/go/bin # where Go's own installer puts it

# get NAME VERSION COMMAND...: the command makes $tools/NAME, unless that version is there.
get() {
    name=$1 version=$2
    shift 2
    if [ -e "$tools/$name" ] && [ "$(cat "$tools/$name.version" 2>/dev/null)" = "$version" ]; then
        return
    fi
    echo "getting $name $version (once)"
    if "$@" >"$tools/$name.log" 2>&1; then
        echo "$version" >"$tools/$name.version"
    else
        echo "there is no $name: $(tail -n 1 "$tools/$name.log")"
    fi
}

# bounded SECONDS COMMAND...: a registry that does not answer holds up nothing for long.
bounded() {
    if command -v timeout >/dev/null; then timeout "$@"; else shift && "$@"; fi
}

# from_go NAME MODULE: builds it; the program is named after the module's last part.
from_go() {
    GOBIN=$tools/go bounded 600 go install "$2@$version" && mv "$tools/go/${2##*/}" "$tools/$1"
}

# Debian's package holds both programs; building them means building the clients of all clouds.
from_debian() {
    folder=$(mktemp -d) && cd "$folder" || return 1
    bounded 60 apt-get download prometheus ||
        { bounded 60 apt-get update && bounded 60 apt-get download prometheus; } || return 1
    dpkg -x prometheus_*.deb . && cp usr/bin/promtool usr/bin/prometheus "$tools" && rm -r "$folder"
}

# Schemas of operators' objects, compiled to programs; Strimzi's are not among them.
from_npm() {
    bounded 120 npm install --prefix "$tools/crds" --ignore-scripts --no-audit --no-fund --no-save \
        "@kubernetes-models/keda@2.0.0" "@kubernetes-models/prometheus-operator@6.0.0" \
        "@kubernetes-models/external-secrets@2.0.0"
}

mkdir -p "$tools"
# Building Helm takes minutes: only where the environment does not have it as a wheel.
[ -x .venv/bin/helm ] || get helm v3.17.3 from_go helm helm.sh/helm/v3/cmd/helm
get compose-check v2.9.0 from_go compose-check github.com/compose-spec/compose-go/v2/cmd
[ -e "$tools/prometheus" ] || rm -f "$tools/promtool.version" # of a time when it was not kept
(get promtool debian from_debian)
get crds 2.0.0 from_npm
