"""`python -m worker.embedded.prerequisites`: what a real Apache Kafka still needs on this machine.

Prints the Debian packages to install and exits 1; prints nothing and exits 0 when none is missing.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from worker.embedded.kafka_jars import default_cache

JAVA_MAJOR_MIN = 17
JAVA_PACKAGE = "default-jre-headless"
MAVEN_PACKAGE = "maven"
VERSION_TIMEOUT_S = 30.0


def missing_packages(cache: Path | None = None) -> list[str]:
    """Debian packages that are missing; with the jars in the cache, Maven is not."""
    packages = [] if _java_major() >= JAVA_MAJOR_MIN else [JAVA_PACKAGE]
    fetched = (cache or default_cache()).is_dir()
    return packages if fetched or shutil.which("mvn") else [*packages, MAVEN_PACKAGE]


def _java_major() -> int:
    """0 where there is no Java, or none that tells its version."""
    java = shutil.which("java")
    if java is None:
        return 0
    told = subprocess.run([java, "-version"], check=False, capture_output=True, text=True, timeout=VERSION_TIMEOUT_S)  # noqa: S603  # found on the PATH
    version = re.search(r'version "(\d+)', told.stderr)
    return int(version.group(1)) if version else 0


def main() -> int:
    packages = missing_packages()
    if packages:
        sys.stdout.write(" ".join(packages) + "\n")
        sys.stderr.write(f"Apache Kafka needs: apt-get install {' '.join(packages)}\n")
    return 1 if packages else 0


if __name__ == "__main__":
    sys.exit(main())
