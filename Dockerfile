# One image for dashboard and workers; docker-compose.yml starts both. Smaller, without CUDA:
# `docker-compose build --build-arg PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu`
ARG BASE=python:3.11-slim

FROM ${BASE} AS packages
# Where pip looks, for who has a mirror. These stages are left behind, and the addresses with them.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_NO_INDEX
ARG PIP_TRUSTED_HOST
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PATH=/opt/rankzero/bin:$PATH
RUN python3 -m venv /opt/rankzero
WORKDIR /source
# The packages alone, gigabytes: installed again when what is pinned changes, not when code does.
COPY pyproject.toml constraints.txt ./
RUN touch README.md LICENSE && pip install -c constraints.txt ".[server,worker,torch,postgres,s3]"

FROM packages AS code
COPY README.md LICENSE ./
COPY domain domain
COPY db db
COPY worker worker
COPY dashboard dashboard
COPY cli cli
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

FROM ${BASE}
# For runs of a repository's code; without git, folders are looked through by our own reading of .gitignore.
RUN apt-get update && apt-get install -y --no-install-recommends git openssh-client \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home rankzero \
    && install -d -o rankzero -g rankzero -m 700 /data /join
COPY --from=packages /opt/rankzero /opt/rankzero
COPY --from=code /wheels /wheels
ENV PATH=/opt/rankzero/bin:$PATH RANKZERO_DATA=/data
RUN pip install --no-cache-dir --no-index --no-deps --force-reinstall /wheels/*.whl
USER rankzero
VOLUME /data
EXPOSE 8765
ENTRYPOINT ["rankzero"]
CMD ["--help"]
