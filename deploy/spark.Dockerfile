# Spark with the pipeline, for compose.yaml's profile spark: master, worker and jobs.
# Build from the repository: docker build -f deploy/spark.Dockerfile -t penstock-spark .

FROM python:3.11-slim
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
ENV NUMBA_CPU_NAME=generic PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1 HOME=/tmp
# procps: Spark's scripts ask for ps.
RUN apt-get update -qq \
 && apt-get install -qq --yes --no-install-recommends default-jre-headless procps >/dev/null \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY requirements-spark.lock pyproject.toml README.md ./
RUN mkdir storage services penstock cli pipeline pyspark_penstock \
 && touch {storage,services,penstock,cli,pipeline,pyspark_penstock}/__init__.py \
 && pip install --quiet --constraint requirements-spark.lock '.[spark]' \
 && pip uninstall --quiet --yes penstock
COPY storage storage
COPY services services
COPY penstock penstock
COPY cli cli
COPY pipeline pipeline
COPY pyspark_penstock pyspark_penstock
RUN pip install --quiet --no-deps . && cd / && python -m storage.kernels
RUN useradd --system --uid 10001 --no-create-home --home-dir /nonexistent penstock
USER penstock
WORKDIR /tmp
ENTRYPOINT ["penstock"]
CMD ["job", "--help"]
