"""What a process of the user's inherits of the gateway's environment; other variables could hold its secrets."""

import os
from collections.abc import Mapping

INHERITED = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
)  # fmt: skip
INHERITED_BEGINNINGS = ("LC_", "CUDA_", "NVIDIA_", "OMP_", "OPENBLAS_", "MKL_")


def kept_environment(own: Mapping[str, str]) -> dict[str, str]:
    """The process's own variables, over the few that every one inherits."""
    kept = {
        name: value for name, value in os.environ.items() if name in INHERITED or name.startswith(INHERITED_BEGINNINGS)
    }
    return {**kept, **own}
