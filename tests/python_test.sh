#!/usr/bin/env bash
# usage: python_test.sh FOLDER. Runs the tests of the Python package on the package in the build folder FOLDER. It takes
# the Python of ./dev python, or else python3, and is skipped where that lacks NumPy or pytest.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
python=$source/build/python-venv/bin/python
[[ -x $python ]] || python=python3
if ! why=$("$python" -c 'import numpy, pytest' 2>&1); then
  echo "skipped: $python: $(tail -1 <<<"$why"); ./dev python fetches what is missing"
  exit 77
fi
# The tests of PyTorch, JAX and Hugging Face are those of ./dev python.
cd "$1"
PYTHONPATH=$1 "$python" -m pytest "$source/tests/python" -q -rs -p no:cacheprovider -m "not slow" \
  --ignore-glob='*test_torch*' --ignore-glob='*test_jax*' --ignore-glob='*test_hf*' --ignore-glob='*test_flash*'
