// The element-wise work and the attention of training on a CPU, forward and backward, each in one pass over memory.
// Plain PyTorch does the same (model.py); this only saves time. Compiled and called by fused.py.
//
// Built with -O3 -march=native -ffast-math -fopenmp. All arrays are contiguous float32; the head dimension is 64.

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { kHead = 64, kHalf = 32, kRows = 64, kTileM = 8, kTileN = 32 };

typedef float vec __attribute__((vector_size(64), aligned(4)));

// C[8][32] (+)= sum over k of A(r, k) B[k][0..31], where A(r, k) = a[r * row + k * step].
static inline void Tile(const float* a, long row, long step, const float* b, long ldb, float* c, long ldc, long depth,
                        int add) {
  vec sum[kTileM][2];
  for (int r = 0; r < kTileM; ++r) sum[r][0] = sum[r][1] = (vec){0};
  for (long k = 0; k < depth; ++k) {
    const vec b0 = *(const vec*)(b + k * ldb), b1 = *(const vec*)(b + k * ldb + 16);
#pragma GCC unroll 8
    for (int r = 0; r < kTileM; ++r) {
      const float s = a[r * row + k * step];
      sum[r][0] += s * b0;
      sum[r][1] += s * b1;
    }
  }
  for (int r = 0; r < kTileM; ++r) {
    vec* out = (vec*)(c + r * ldc);
    out[0] = add ? out[0] + sum[r][0] : sum[r][0];
    vec* next = (vec*)(c + r * ldc + 16);
    next[0] = add ? next[0] + sum[r][1] : sum[r][1];
  }
}

// C[m][n] (+)= A B; m is a multiple of 8 and n of 32.
static void Product(const float* a, long row, long step, const float* b, long ldb, float* c, long ldc, long m, long n,
                    long depth, int add) {
  for (long j = 0; j < n; j += kTileN) {
    for (long i = 0; i < m; i += kTileM) {
      Tile(a + i * row, row, step, b + j, ldb, c + i * ldc + j, ldc, depth, add);
    }
  }
}

static long RoundUp(long value, long to) { return (value + to - 1) / to * to; }

static float* Floats(long count) {
  float* p = aligned_alloc(64, RoundUp(count * sizeof(float), 64));
  memset(p, 0, count * sizeof(float));
  return p;
}

// Copies one head out of a packed row array, rotated where cos is given; rows beyond `length` stay zero.
static void Gather(const float* from, long stride, long length, const float* cosine, const float* sine, float* to) {
  for (long i = 0; i < length; ++i) {
    const float* x = from + i * stride;
    float* y = to + i * kHead;
    if (!cosine) {
      memcpy(y, x, kHead * sizeof(float));
      continue;
    }
    const float *c = cosine + i * kHalf, *s = sine + i * kHalf;
    for (int d = 0; d < kHalf; ++d) {
      y[d] = x[d] * c[d] - x[d + kHalf] * s[d];
      y[d + kHalf] = x[d + kHalf] * c[d] + x[d] * s[d];
    }
  }
}

// The transpose of Gather's rotation, written back.
static void Scatter(const float* from, long length, const float* cosine, const float* sine, float* to, long stride) {
  for (long i = 0; i < length; ++i) {
    const float* x = from + i * kHead;
    float* y = to + i * stride;
    if (!cosine) {
      memcpy(y, x, kHead * sizeof(float));
      continue;
    }
    const float *c = cosine + i * kHalf, *s = sine + i * kHalf;
    for (int d = 0; d < kHalf; ++d) {
      y[d] = x[d] * c[d] + x[d + kHalf] * s[d];
      y[d + kHalf] = x[d + kHalf] * c[d] - x[d] * s[d];
    }
  }
}

static void Transpose(const float* from, long rows, float* to, long ld) {
  for (long i = 0; i < rows; ++i) {
    for (int d = 0; d < kHead; ++d) to[d * ld + i] = from[i * kHead + d];
  }
}

// qkv: [batch, length, (heads + 2 groups) * 64]; cosine, sine: [batch, length, 32]; out: [batch, length, heads * 64];
// lse: [batch, heads, length].
void AttentionForward(const float* qkv, const float* cosine, const float* sine, float* out, float* lse, long batch,
                      long length, long heads, long groups) {
  const long stride = (heads + 2 * groups) * kHead, padded = RoundUp(length, kRows), share = heads / groups;
  const float scale = 1.0f / sqrtf(kHead);
#pragma omp parallel
  {
    float *q = Floats(padded * kHead), *k = Floats(padded * kHead), *v = Floats(padded * kHead);
    float *kt = Floats(padded * kHead), *scores = Floats(kRows * padded), *o = Floats(kRows * kHead);
#pragma omp for schedule(dynamic) collapse(2)
    for (long b = 0; b < batch; ++b) {
      for (long g = 0; g < groups; ++g) {
        const float* base = qkv + b * length * stride;
        const float *c = cosine + b * length * kHalf, *s = sine + b * length * kHalf;
        Gather(base + (heads + g) * kHead, stride, length, c, s, k);
        Gather(base + (heads + groups + g) * kHead, stride, length, NULL, NULL, v);
        Transpose(k, padded, kt, padded);
        for (long h = g * share; h < (g + 1) * share; ++h) {
          Gather(base + h * kHead, stride, length, c, s, q);
          for (long i0 = 0; i0 < length; i0 += kRows) {
            const long n = i0 + kRows;
            Product(q + i0 * kHead, kHead, 1, kt, padded, scores, padded, kRows, n, kHead, 0);
            for (long i = i0; i < i0 + kRows; ++i) {
              float* row = scores + (i - i0) * padded;
              float top = -INFINITY, sum = 0.0f;
              for (long j = 0; j <= i; ++j) top = fmaxf(top, row[j]);
              for (long j = 0; j <= i; ++j) sum += row[j] = expf((row[j] - top) * scale);
              for (long j = 0; j <= i; ++j) row[j] /= sum;
              for (long j = i + 1; j < n; ++j) row[j] = 0.0f;
              if (i < length) lse[(b * heads + h) * length + i] = top * scale + logf(sum);
            }
            Product(scores, padded, 1, v, kHead, o, kHead, kRows, kHead, n, 0);
            for (long i = i0; i < i0 + kRows && i < length; ++i) {
              memcpy(out + ((b * length + i) * heads + h) * kHead, o + (i - i0) * kHead, kHead * sizeof(float));
            }
          }
        }
      }
    }
    free(q), free(k), free(v), free(kt), free(scores), free(o);
  }
}

void AttentionBackward(const float* qkv, const float* cosine, const float* sine, const float* out, const float* lse,
                       const float* grad, float* result, long batch, long length, long heads, long groups) {
  const long stride = (heads + 2 * groups) * kHead, padded = RoundUp(length, kRows), share = heads / groups;
  const float scale = 1.0f / sqrtf(kHead);
#pragma omp parallel
  {
    float *q = Floats(padded * kHead), *k = Floats(padded * kHead), *v = Floats(padded * kHead);
    float *kt = Floats(padded * kHead), *vt = Floats(padded * kHead), *go = Floats(padded * kHead);
    float *dq = Floats(padded * kHead), *dk = Floats(padded * kHead), *dv = Floats(padded * kHead);
    float *p = Floats(kRows * padded), *ds = Floats(kRows * padded);
#pragma omp for schedule(dynamic) collapse(2)
    for (long b = 0; b < batch; ++b) {
      for (long g = 0; g < groups; ++g) {
        const float* base = qkv + b * length * stride;
        float* to = result + b * length * stride;
        const float *c = cosine + b * length * kHalf, *s = sine + b * length * kHalf;
        Gather(base + (heads + g) * kHead, stride, length, c, s, k);
        Gather(base + (heads + groups + g) * kHead, stride, length, NULL, NULL, v);
        Transpose(k, padded, kt, padded);
        Transpose(v, padded, vt, padded);
        memset(dk, 0, padded * kHead * sizeof(float));
        memset(dv, 0, padded * kHead * sizeof(float));
        for (long h = g * share; h < (g + 1) * share; ++h) {
          Gather(base + h * kHead, stride, length, c, s, q);
          Gather(grad + (b * length * heads + h) * kHead, heads * kHead, length, NULL, NULL, go);
          for (long i0 = 0; i0 < length; i0 += kRows) {
            const long n = i0 + kRows;
            Product(q + i0 * kHead, kHead, 1, kt, padded, p, padded, kRows, n, kHead, 0);
            Product(go + i0 * kHead, kHead, 1, vt, padded, ds, padded, kRows, n, kHead, 0);
            for (long i = i0; i < i0 + kRows; ++i) {
              float *row = p + (i - i0) * padded, *drow = ds + (i - i0) * padded;
              const long end = i < length ? i + 1 : 0;
              float dot = 0.0f, level = 0.0f;
              if (end) {
                const float* o = out + ((b * length + i) * heads + h) * kHead;
                for (int d = 0; d < kHead; ++d) dot += o[d] * go[i * kHead + d];
                level = lse[(b * heads + h) * length + i];
              }
              for (long j = 0; j < end; ++j) {
                row[j] = expf(row[j] * scale - level);
                drow[j] = row[j] * (drow[j] - dot) * scale;
              }
              for (long j = end; j < n; ++j) row[j] = drow[j] = 0.0f;
            }
            Product(ds, padded, 1, k, kHead, dq + i0 * kHead, kHead, kRows, kHead, n, 0);
            Product(ds, 1, padded, q + i0 * kHead, kHead, dk, kHead, n, kHead, kRows, 1);
            Product(p, 1, padded, go + i0 * kHead, kHead, dv, kHead, n, kHead, kRows, 1);
          }
          Scatter(dq, length, c, s, to + h * kHead, stride);
        }
        Scatter(dk, length, c, s, to + (heads + g) * kHead, stride);
        Scatter(dv, length, NULL, NULL, to + (heads + groups + g) * kHead, stride);
      }
    }
    free(q), free(k), free(v), free(kt), free(vt), free(go), free(dq), free(dk), free(dv), free(p), free(ds);
  }
}

void NormForward(const float* x, const float* weight, float* y, float* inverse, long rows, long width, float epsilon) {
#pragma omp parallel for
  for (long i = 0; i < rows; ++i) {
    const float* from = x + i * width;
    float sum = 0.0f;
    for (long d = 0; d < width; ++d) sum += from[d] * from[d];
    const float r = inverse[i] = 1.0f / sqrtf(sum / width + epsilon);
    for (long d = 0; d < width; ++d) y[i * width + d] = from[d] * r * weight[d];
  }
}

// weight_grad must be zero.
void NormBackward(const float* x, const float* weight, const float* inverse, const float* grad, float* x_grad,
                  float* weight_grad, long rows, long width) {
#pragma omp parallel
  {
    float* mine = Floats(width);
#pragma omp for
    for (long i = 0; i < rows; ++i) {
      const float *from = x + i * width, *g = grad + i * width;
      const float r = inverse[i];
      float dot = 0.0f;
      for (long d = 0; d < width; ++d) dot += g[d] * weight[d] * from[d];
      const float back = dot * r * r * r / width;
      for (long d = 0; d < width; ++d) {
        x_grad[i * width + d] = g[d] * weight[d] * r - from[d] * back;
        mine[d] += g[d] * from[d] * r;
      }
    }
#pragma omp critical
    for (long d = 0; d < width; ++d) weight_grad[d] += mine[d];
    free(mine);
  }
}

// both: [rows, 2 hidden], gate then up; y = silu(gate) * up.
void GateForward(const float* both, float* y, long rows, long hidden) {
#pragma omp parallel for
  for (long i = 0; i < rows; ++i) {
    const float *gate = both + i * 2 * hidden, *up = gate + hidden;
    for (long d = 0; d < hidden; ++d) y[i * hidden + d] = gate[d] / (1.0f + expf(-gate[d])) * up[d];
  }
}

void GateBackward(const float* both, const float* grad, float* result, long rows, long hidden) {
#pragma omp parallel for
  for (long i = 0; i < rows; ++i) {
    const float *gate = both + i * 2 * hidden, *up = gate + hidden, *g = grad + i * hidden;
    float *dgate = result + i * 2 * hidden, *dup = dgate + hidden;
    for (long d = 0; d < hidden; ++d) {
      const float s = 1.0f / (1.0f + expf(-gate[d]));
      dup[d] = g[d] * gate[d] * s;
      dgate[d] = g[d] * up[d] * s * (1.0f + gate[d] * (1.0f - s));
    }
  }
}
