# A server of one model:
#   docker build -t ballast .
#   docker run -p 8080:8080 -v "$PWD/models:/models:ro" ballast serve -m /models/model.gguf --host 0.0.0.0 --api-key KEY
FROM debian:12 AS build
WORKDIR /source
COPY . .
RUN ./setup.sh && rm -rf build-packages \
 && cmake --preset packages -DBALLAST_PYTHON=OFF \
 && cmake --build --preset packages \
 && mkdir /debs && mv build-packages/ballast_*.deb /debs

FROM debian:12-slim
RUN --mount=from=build,source=/debs,target=/debs apt-get update \
 && apt-get install -y --no-install-recommends /debs/ballast_*.deb ca-certificates curl poppler-utils \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home ballast
USER ballast
WORKDIR /home/ballast
EXPOSE 8080
HEALTHCHECK --start-period=60s CMD ["curl", "-fsS", "http://127.0.0.1:8080/health"]
ENTRYPOINT ["ballast"]
CMD ["--help"]
