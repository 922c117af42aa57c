#!/bin/sh
# Makes a virtual environment: `environment.sh PYTHON FOLDER`. Where something is missing, one sentence says what to install.
python=$1
folder=$2
[ -x "$folder/bin/python" ] && exit 0

refuse() {
    echo "make: $1" >&2
    exit 1
}

command -v "$python" >/dev/null 2>&1 ||
    refuse "there is no '$python' here: run 'apt-get install python3 python3-venv' as root, or name another with 'make PYTHON=/path/to/python3.11'."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    refuse "'$python' is $("$python" -c 'import platform; print(platform.python_version())'), and dpsketch needs Python 3.11 or newer: Debian has one from version 12 on; name it with 'make PYTHON=/path/to/python3.11'."
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    refuse "'$python' cannot make virtual environments: run 'apt-get install python3-venv' as root."
mkdir -p "$folder" 2>/dev/null && [ -w "$folder" ] ||
    refuse "'$folder' cannot be written by $(id -un): use a copy of the project that you own, or another folder with 'make VENV=/path/of/yours'."
"$python" -m venv "$folder" ||
    refuse "the environment in '$folder' could not be made, for the reason above: remove the folder and try again."
