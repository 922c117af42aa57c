#!/bin/sh
# Installs what the integration tests start for themselves, where it is missing and where this is allowed;
# otherwise it names what will be skipped.
missing=""
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
command -v node >/dev/null 2>&1 || missing="$missing nodejs"
command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
command -v java >/dev/null 2>&1 || missing="$missing openjdk-17-jre-headless"
command -v nginx >/dev/null 2>&1 || missing="$missing nginx-light"
command -v npm >/dev/null 2>&1 || missing="$missing npm"
command -v caddy >/dev/null 2>&1 || missing="$missing caddy"
if [ -z "$missing" ]; then
    :
elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing:$missing"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing >/dev/null \
        || echo "could not install:$missing; the tests that need it are skipped"
else
    echo "missing and not installable by this user:$missing; the tests that need it are skipped"
fi
# axe-core, which looks for what keeps people from using the page.
browser="$(dirname "$0")/browser"
if [ ! -e "$browser/node_modules/axe-core/axe.min.js" ]; then
    (cd "$browser" && npm install --no-audit --no-fund --no-package-lock --silent) \
        || echo "could not install axe-core; the test that needs it is skipped"
fi
exit 0
