# The lab in a container, from the same lock:
#   docker build -t cellrepro .
#   docker run --rm -v "$PWD/outputs:/lab/outputs" cellrepro
# The notebooks, for this computer alone; it prints the address with its token:
#   docker run --rm -it -p 127.0.0.1:8888:8888 -v "$PWD/outputs:/lab/outputs" cellrepro make lab IP=0.0.0.0
FROM python:3.12-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential chromium git \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /lab
COPY requirements.lock pyproject.toml setup.py Makefile README.md LICENSE ./
COPY scripts/set_up.py scripts/
COPY src src
RUN UV_NO_CACHE=1 PIP_NO_CACHE_DIR=1 make setup
COPY . .

CMD ["make", "demo"]
