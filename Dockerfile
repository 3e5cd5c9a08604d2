# The lab in a container, from the same lock:
#   docker build -t cellrepro .
#   docker run --rm -v "$PWD/outputs:/lab/outputs" cellrepro
FROM python:3.12-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential chromium git \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /lab
COPY requirements.lock pyproject.toml Makefile README.md LICENSE ./
COPY src src
RUN make setup
COPY . .

CMD ["make", "demo"]
