#!/usr/bin/env bash
# usage: python_test.sh FOLDER. Runs the tests of the Python package on the package in the build folder FOLDER. It takes
# the Python of ./dev python, or else python3, and is skipped where that lacks NumPy or pytest.
#
# The tests of PyTorch, JAX and Hugging Face are those of ./dev python. In CI that stage has run all tests on an
# installed wheel before, so that here only a short list follows: the build folder's package differs in where its files
# lie and in how its library was compiled.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
python=$source/build/python-venv/bin/python
[[ -x $python ]] || python=python3
if ! why=$("$python" -c 'import numpy, pytest' 2>&1); then
  echo "skipped: $python: $(tail -1 <<<"$why"); ./dev python fetches what is missing"
  exit 77
fi
here=$source/tests/python  # pytest reads --ignore-glob from the folder that it runs in, so patterns are whole paths
if [[ -n ${CI:-} ]]; then
  tests=()
  for name in attention backward linear plans sdk docstrings; do tests+=("$here/test_$name.py"); done
else
  tests=("$here" -k 'not (test_examples and (jax or torch or huggingface or flash_attn))')
  for name in torch jax hf flash fa_runner examples; do tests+=("--ignore-glob=$here/test_$name*"); done
fi
cd "$1"
PYTHONPATH=$1 "$python" -m pytest "${tests[@]}" -q -rs -p no:cacheprovider -m "not slow"
