#!/usr/bin/env python3
"""Stand-ins for the CUDA libraries that the torch wheel links to, so that it loads on a machine without a GPU.

The torch wheel of the public index is a CUDA build. Its CPU kernels are complete, but the dynamic loader wants some fifteen
CUDA libraries (2.7 GB of wheels) before it lets the module in. One small library with the same symbols and symbol versions
does; every symbol traps when called, but for the few that torch calls at import, which answer "no device".

usage: cuda_stubs.py SITE_PACKAGES/torch/lib        needs gcc, nm and readelf
"""

import glob
import os
import re
import subprocess
import sys
import tempfile

CUDA_LIBRARY = re.compile(r"lib(cu|nv|nccl)")
CUDA_SYMBOL = re.compile(
    r"^_?(cu[A-Z_]|cublas|cudnn|cusparse|cufft|curand|cusolver|cuda|cupti|cufile|cuFile|nccl|nvrtc|nvshmem|nvJit|nvtx"
    r"|__cuda|nvml|cusparseLt)"
)
CUDA_ERROR_NO_DEVICE = 100
ASKED_AT_IMPORT = (
    "cudaGetDeviceCount cudaGetDevice cudaGetLastError cudaPeekAtLastError cudaDriverGetVersion cudaRuntimeGetVersion "
    "cudaSetDevice cudaProfilerStop cudaProfilerStart"
).split()
REGISTRATION = (
    "__cudaRegisterFatBinaryEnd __cudaUnregisterFatBinary __cudaRegisterFunction __cudaRegisterVar "
    "__cudaRegisterManagedVar __cudaInitModule"
).split()


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def body_of(symbol):
    if symbol == "__cudaRegisterFatBinary":
        return f"static long handle; void *{symbol}(void *p) {{ return &handle; }}"
    if symbol in REGISTRATION:
        return f"int {symbol}(void) {{ return 0; }}"
    if symbol in ASKED_AT_IMPORT:
        return f"int {symbol}(int *p) {{ (void)p; return {CUDA_ERROR_NO_DEVICE}; }}"
    return f"void {symbol}(void) {{ __builtin_trap(); }}"


def main(torch_lib):
    stub = os.path.join(torch_lib, "libcudastubs.so")
    objects = [
        path
        for path in glob.glob(f"{torch_lib}/*.so*") + glob.glob(f"{os.path.dirname(torch_lib)}/_C*.so")
        if os.path.isfile(path) and not os.path.islink(path) and path != stub
    ]
    present = {os.path.basename(path) for path in objects}
    needed, undefined, defined, versions = set(), set(), set(), {}
    for path in objects:
        needed.update(re.findall(r"NEEDED.*\[([^\]]+)\]", output_of("readelf", "-d", path)))
        for line in output_of("nm", "-D", path).splitlines():
            *_, kind, name = line.split()
            symbol, _, version = name.replace("@@", "@").partition("@")
            if kind in "Uw":
                undefined.add(symbol)
                if version:
                    versions.setdefault(version, set()).add(symbol)
            elif kind != "v":
                defined.add(symbol)
    libraries = sorted(name for name in needed - present if CUDA_LIBRARY.match(name))
    symbols = sorted(symbol for symbol in undefined - defined if CUDA_SYMBOL.match(symbol))

    with tempfile.TemporaryDirectory() as scratch:
        source, script = os.path.join(scratch, "stubs.c"), os.path.join(scratch, "stubs.map")
        with open(source, "w") as file:
            file.write("\n".join(map(body_of, symbols)))
        with open(script, "w") as file:
            for version, names in sorted(versions.items()):
                ours = sorted(names.intersection(symbols))
                if ours:
                    file.write(f'{version} {{ global: {" ".join(f"{name};" for name in ours)} }};\n')
        subprocess.run(
            ["gcc", "-w", "-shared", "-fPIC", "-O0", f"-Wl,--version-script={script}", "-o", stub, source], check=True
        )
    for name in libraries:
        link = os.path.join(torch_lib, name)
        if os.path.lexists(link):
            os.unlink(link)
        os.symlink(os.path.basename(stub), link)
    print(f"{len(libraries)} CUDA libraries stood in for, {len(symbols)} symbols")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
