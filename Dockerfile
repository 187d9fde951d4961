# One image for dashboard and worker; docker-compose.yml starts both.
FROM python:3.11-slim

WORKDIR /rankzero
COPY pyproject.toml constraints.txt README.md ./
COPY db db
COPY worker worker
COPY dashboard dashboard
RUN pip install --no-cache-dir -c constraints.txt .

ENV RANKZERO_DATA=/data
VOLUME /data
EXPOSE 8765
ENTRYPOINT ["rankzero"]
CMD ["--help"]
