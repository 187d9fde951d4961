# One image for dashboard and worker; docker-compose.yml starts both.
FROM python:3.11-slim

# For runs of a repository's code; without git, folders are looked through by our own reading of .gitignore.
RUN apt-get update && apt-get install -y --no-install-recommends git openssh-client \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /rankzero
COPY pyproject.toml constraints.txt README.md ./
COPY db db
COPY worker worker
COPY dashboard dashboard
RUN pip install --no-cache-dir -c constraints.txt ".[postgres]"

ENV RANKZERO_DATA=/data
VOLUME /data
EXPOSE 8765
ENTRYPOINT ["rankzero"]
CMD ["--help"]
