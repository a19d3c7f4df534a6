/*
 * Ballast for C, and for languages that call C: caches and attention, models and generation.
 * docs/python-and-c.md has a tour; examples/c has whole programs.
 *
 * - Handles are opaque. What a ..._new(), _load() or _clone() made, the ..._free() of its type
 * ends; NULL may be freed.
 * - A function that can fail returns a ballast_status. ballast_last_error() then says in one line
 *   what went wrong, with the value and what was expected. Outputs are written on success only.
 * - Structs that may grow begin with their size. Take one from its ..._default_params(), which sets
 *   the size, and change what you need. NULL in place of one means the defaults.
 * - Texts are UTF-8. Arrays that a function fills come with their capacity and a count, which is
 *   set to all that there is; with capacity 0 the array may be NULL and the count alone is set. A
 *   capacity in between is an error.
 * - A handle serves one call at a time; different handles may be used in different threads. A
 *   ballast_model never changes and serves any number of threads.
 * - Text that was returned lives as long as its handle, or as its function says.
 */
#ifndef BALLAST_H
#define BALLAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define BALLAST_API
#else
#define BALLAST_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status, errors, log ---------------------------------------------------------------- */

typedef enum ballast_status {
  BALLAST_OK = 0,
  BALLAST_INVALID_ARGUMENT = 1, /* a value, shape or call that the caller can change */
  BALLAST_BAD_FILE = 2,         /* a file that is damaged, or of another format or model */
  BALLAST_IO = 3,               /* a file that cannot be opened, read or written */
  BALLAST_OUT_OF_MEMORY = 4,
  BALLAST_UNSUPPORTED = 5, /* valid input that this version cannot handle */
  BALLAST_NOT_FINITE = 6,  /* a NaN or an infinity where a number is needed */
  BALLAST_OVER_LIMIT = 7,  /* more tokens than the model has positions */
  BALLAST_INTERNAL = 8     /* a fault of the library */
} ballast_status;

/* "ok", "invalid_argument", …; "unknown" for any other number. Lives as long as the process. */
BALLAST_API const char* ballast_status_name(ballast_status status);

/* What the last failed call of this thread has to say, or "". Valid until the next call of this
 * thread that fails. */
BALLAST_API const char* ballast_last_error(void);

typedef enum ballast_log_level {
  BALLAST_LOG_INFO = 0,    /* a model was loaded */
  BALLAST_LOG_WARNING = 1, /* what a method reports once it has summarised a prompt */
  BALLAST_LOG_ERROR = 2    /* the text of ballast_last_error() */
} ballast_log_level;

typedef void (*ballast_log_callback)(ballast_log_level level, const char* line, void* user_data);

/* Sends log lines to `callback`, in the thread that they come from; NULL: to nowhere, as at first.
 * The callback must not call Ballast. */
BALLAST_API void ballast_set_log(ballast_log_callback callback, void* user_data);

/* "0.1.0" */
BALLAST_API const char* ballast_version(void);

/* Threads of the handles that ask for none of their own. Below 1: one for each core. */
BALLAST_API void ballast_set_threads(int32_t threads);
BALLAST_API int32_t ballast_threads(void);

/* ---- Methods ------------------------------------------------------------------------------ */

BALLAST_API size_t ballast_method_count(void);
/* Name ("balancekv") and title of method i; NULL beyond the last. Live as long as the process. */
BALLAST_API const char* ballast_method_name(size_t i);
BALLAST_API const char* ballast_method_title(size_t i);

/* ---- Attention ---------------------------------------------------------------------------- */

/* How the caller stores elements. bf16: the upper half of a float32; f16: IEEE binary16. */
typedef enum ballast_element { BALLAST_F32 = 0, BALLAST_F16 = 1, BALLAST_BF16 = 2 } ballast_element;

/* Which of the two sums of attention the entries of a segment enter. */
typedef enum ballast_role {
  BALLAST_BOTH = 0,
  BALLAST_NUMERATOR = 1,
  BALLAST_NORMALISER = 2
} ballast_role;

/* A run of cached entries in float32. */
typedef struct ballast_segment {
  size_t entries;           /* n */
  const float* keys;        /* n x key_dim */
  const float* values;      /* n x value_dim; may be NULL where role is BALLAST_NORMALISER */
  const float* log_weights; /* n natural logarithms of weights; NULL: every weight is 1 */
  const int32_t* positions; /* n places in the text; NULL: see first_position */
  int32_t first_position;   /* that of entry 0, the others following; -1: seen by every query */
  ballast_role role;
} ballast_segment;

typedef struct ballast_attention_params {
  size_t size;
  float scale;            /* of logits; 0: 1/sqrt(key_dim) */
  float softcap;          /* c > 0: a logit s becomes c tanh(s/c); 0: none */
  int32_t sliding_window; /* W > 0: entries at or before position - W are hidden; 0: none */
} ballast_attention_params;

BALLAST_API ballast_attention_params ballast_attention_default_params(void);

/* Attention of m queries of one KV head over all segments:
 *   out = sum w e^s v / sum u e^s,  s = <k,q> scale.
 * queries: m x key_dim, up to 256 dimensions; positions: m, or NULL: every entry is seen;
 * out: m x value_dim, zeros where a query sees nothing. All float32 and contiguous. */
BALLAST_API ballast_status ballast_attention(const ballast_attention_params* params, size_t m,
                                             size_t key_dim, size_t value_dim, const float* queries,
                                             const int32_t* positions,
                                             const ballast_segment* segments, size_t count,
                                             float* out);

/* ---- Caches ------------------------------------------------------------------------------- */

/* The cache of one sequence: every layer, every KV head. */
typedef struct ballast_cache ballast_cache;

/* How keys and values are stored. */
typedef enum ballast_storage {
  BALLAST_STORE_F32 = 0,
  BALLAST_STORE_BF16 = 1,
  BALLAST_STORE_F16 = 2,
  BALLAST_STORE_INT8 = 3,
  BALLAST_STORE_INT4 = 4,
  BALLAST_STORE_Q4 = 5,
  BALLAST_STORE_Q3 = 6,
  BALLAST_STORE_Q2 = 7
} ballast_storage;

/* When tokens leave the exact part. prefill: once, at the end of the prompt; stream: whenever the
 * window overflows. */
typedef enum ballast_protocol { BALLAST_PREFILL = 0, BALLAST_STREAM = 1 } ballast_protocol;

/* Where entries stand. absolute: in the text, keys come rotated; rolling: among the entries kept,
 * keys come before rotation. */
typedef enum ballast_positions { BALLAST_ABSOLUTE = 0, BALLAST_ROLLING = 1 } ballast_positions;

typedef struct ballast_cache_shape {
  size_t size;
  size_t layers;              /* 1 */
  size_t kv_heads;            /* 1 */
  size_t queries_per_kv_head; /* 1: query heads that share a KV head */
  size_t key_dim;             /* set it: 1 to 256 */
  size_t value_dim;           /* 0: key_dim */
  float scale;                /* of logits; 0: 1/sqrt(key_dim) */
  float softcap;              /* see ballast_attention_params */
  int32_t sliding_window;
  const int32_t* sliding_windows; /* one a layer (0: none); NULL: none anywhere */
  const float* alibi_slopes;      /* one a query head; NULL: none */
  /* Rotary embedding of keys and queries, radians per position; NULL: none. Rolling positions
   * need it; keys of few bits (int4, q4, q3, q2) are then about their mean before rotation. */
  const float* rotary_frequencies;
  size_t rotary_count;    /* numbers 2 x rotary_count of a head turn */
  float rotary_magnitude; /* 1 */
  bool rotary_pairs;      /* false: i turns with i + rotary_count; true: 2i with 2i + 1 */
} ballast_cache_shape;

typedef struct ballast_cache_params {
  size_t size;
  const char* method; /* "exact"; "balancekv:rate=0.25,block=128", … */
  const char* bytes;  /* of the whole cache: "1/8", "12%" of the exact bf16 cache, "256M",
                         "40K/token"; "auto", of a context without a method: the smallest that
                         answers as the exact cache, chosen when the prompt ends; NULL: as the
                         method string says */
  ballast_protocol protocol;
  ballast_positions positions;
  ballast_storage key_type;   /* BALLAST_STORE_BF16 */
  ballast_storage value_type; /* BALLAST_STORE_BF16 */
  uint64_t seed;
  size_t expected_tokens; /* of the text; needed by a rate in stream; 0: unknown */
  int32_t threads;        /* of this cache; 0: those of ballast_set_threads() */
  bool check_finite;      /* true: elements that are not finite are an error */
} ballast_cache_params;

BALLAST_API ballast_cache_shape ballast_cache_default_shape(void);
BALLAST_API ballast_cache_params ballast_cache_default_params(void);

/* A view of tokens x heads vectors of `dim` contiguous elements in the caller's memory. Strides
 * count elements. Never grows, so it has no size. */
typedef struct ballast_heads {
  void* data; /* inputs are only read */
  ballast_element type;
  size_t tokens;
  size_t heads;
  size_t dim;
  size_t token_stride; /* from a token to the next, same head */
  size_t head_stride;  /* from a head to the next, same token */
} ballast_heads;

/* A contiguous array [token][head][dim]. */
BALLAST_API ballast_heads ballast_heads_token_major(void* data, ballast_element type, size_t tokens,
                                                    size_t heads, size_t dim);
/* A contiguous array [head][token][dim]. */
BALLAST_API ballast_heads ballast_heads_head_major(void* data, ballast_element type, size_t tokens,
                                                   size_t heads, size_t dim);

BALLAST_API ballast_status ballast_cache_new(const ballast_cache_shape* shape,
                                             const ballast_cache_params* params,
                                             ballast_cache** out);
BALLAST_API void ballast_cache_free(ballast_cache* cache);
/* A copy that goes on by itself. */
BALLAST_API ballast_status ballast_cache_clone(const ballast_cache* cache, ballast_cache** out);

/* Takes in tokens of one layer and answers their queries, causally. keys and values: kv_heads
 * heads; queries and out: kv_heads x queries_per_kv_head heads, those of a KV head side by side.
 * queries and out may be NULL together where no output is needed and the method watches no
 * attention. Layers are fed in order. On an error the cache is as it was. */
BALLAST_API ballast_status ballast_cache_forward(ballast_cache* cache, size_t layer,
                                                 const ballast_heads* keys,
                                                 const ballast_heads* values,
                                                 const ballast_heads* queries,
                                                 const ballast_heads* out);
/* The prompt has ended: prefill summarises its middle. Once. */
BALLAST_API ballast_status ballast_cache_finish_prompt(ballast_cache* cache);

/* Replay pass, for methods that need one (`replay`): when ballast_cache_needs_replay(), start
 * it for each layer, feed tokens that look back at the text, then finish the prompt.
 * output_grams: for each query head W_O W_O^T of its part of the output projection, value_dim x
 * value_dim, one after the other; NULL: the identity. */
BALLAST_API bool ballast_cache_needs_replay(const ballast_cache* cache);
BALLAST_API ballast_status ballast_cache_start_replay(ballast_cache* cache, size_t layer,
                                                      const float* output_grams);
/* tokens x heads rows in float32 as of ballast_heads_token_major(). query_weights: 1/|x| of each
 * token's residual stream where it enters the layer; NULL: 1. Nothing of the tokens is kept. */
BALLAST_API ballast_status ballast_cache_replay(ballast_cache* cache, size_t layer, size_t tokens,
                                                const float* keys, const float* values,
                                                const float* queries, const float* query_weights,
                                                float* out);

/* Forgets all tokens but the first `tokens`, where that is possible. */
BALLAST_API ballast_status ballast_cache_truncate(ballast_cache* cache, size_t tokens);
/* Makes room for a text of that many tokens at once. */
BALLAST_API ballast_status ballast_cache_reserve(ballast_cache* cache, size_t tokens);

/* Tokens seen by a layer, and entries kept per KV head (the largest). 0 for a layer that is not
 * there. */
BALLAST_API size_t ballast_cache_tokens(const ballast_cache* cache, size_t layer);
BALLAST_API size_t ballast_cache_entries(const ballast_cache* cache, size_t layer);

/* Bytes held, by part. */
typedef struct ballast_cache_bytes {
  size_t size; /* set it to sizeof(ballast_cache_bytes) */
  size_t total;
  size_t used; /* total less the room reserved for tokens to come */
  size_t sink;
  size_t summary;
  size_t window;
  size_t attention_stats;
  size_t rotary;
  size_t room;
} ballast_cache_bytes;

BALLAST_API ballast_status ballast_cache_get_bytes(const ballast_cache* cache,
                                                   ballast_cache_bytes* out);

/* One kept entry: the token it was, and its weights; 0: not in that sum. */
typedef struct ballast_kept {
  int32_t position;
  float weight;
  float normaliser_weight;
} ballast_kept;

/* The kept entries of one head, in order of position. */
BALLAST_API ballast_status ballast_cache_kept(const ballast_cache* cache, size_t layer, size_t head,
                                              ballast_kept* out, size_t capacity, size_t* count);

/* A checksummed file; ballast_cache_load() goes on from it to the bit. */
BALLAST_API ballast_status ballast_cache_save(const ballast_cache* cache, const char* path);
BALLAST_API ballast_status ballast_cache_load(const char* path, ballast_cache** out);

/* ---- Codec: chunks of a cache as bytes ----------------------------------------------------- */

/* Encodes and decodes chunks of any number of tokens, for servers that keep caches elsewhere. Any
 * number of threads may use one. */
typedef struct ballast_codec ballast_codec;

/* Of the shape, layers, kv_heads, dimensions and rotary embedding count. preset: "fast-4", "fast-3"
 * or "fast-2", keys in 4 bits and values in 4, 3 or 2; "pack-16" or "pack-32", packed with a basis;
 * NULL: "fast-4". model: a name; chunks of another are refused; NULL: "". basis: the file that
 * `ballast calibrate` made of the model; NULL for "fast-…". */
BALLAST_API ballast_status ballast_codec_new(const ballast_cache_shape* shape, const char* preset,
                                             const char* model, const char* basis,
                                             ballast_codec** out);
BALLAST_API void ballast_codec_free(ballast_codec* codec);
/* The most bytes that a chunk of so many tokens can take. */
BALLAST_API ballast_status ballast_codec_bound(const ballast_codec* codec, size_t tokens,
                                               size_t* bytes);
/* keys, values: a view for each layer, of the same tokens. position: of the first token in its
 * text; -1: not known. out: ballast_codec_bound() bytes or more; *bytes of them are the chunk. */
BALLAST_API ballast_status ballast_codec_encode(const ballast_codec* codec,
                                                const ballast_heads* keys,
                                                const ballast_heads* values, int64_t position,
                                                void* out, size_t capacity, size_t* bytes);
/* Writes the rows of a chunk, behind which `chunk` may have other bytes. BALLAST_BAD_FILE for one
 * that is damaged, cut, or of another model, shape, preset or number of tokens. */
BALLAST_API ballast_status ballast_codec_decode(const ballast_codec* codec, const void* chunk,
                                                size_t bytes, const ballast_heads* keys,
                                                const ballast_heads* values);

/* ---- Models ------------------------------------------------------------------------------- */
/* The rest is missing from a library that was built without its engine (BALLAST_ENGINE=OFF). */

/* A model with its tokenizer. */
typedef struct ballast_model ballast_model;

/* `path`: a GGUF file, or a Hugging Face folder. Weights are mapped, not read. */
BALLAST_API ballast_status ballast_model_load(const char* path, ballast_model** out);
/* Contexts of the model may live on. */
BALLAST_API void ballast_model_free(ballast_model* model);

typedef struct ballast_model_info {
  size_t size; /* set it to sizeof(ballast_model_info) */
  size_t layers;
  size_t width;
  size_t heads;
  size_t kv_heads;
  size_t key_dim;
  size_t value_dim;
  size_t vocabulary;    /* logits of a token */
  size_t max_positions; /* tokens of a text */
  int32_t bos;          /* -1: none */
  int32_t eos;
} ballast_model_info;

BALLAST_API ballast_status ballast_model_get_info(const ballast_model* model,
                                                  ballast_model_info* out);

/* Token ids of `length` bytes of text. add_special: with begin and end as the vocabulary asks;
 * parse_special: "<|im_end|>" in the text means that token. */
BALLAST_API ballast_status ballast_tokenize(const ballast_model* model, const char* text,
                                            size_t length, bool add_special, bool parse_special,
                                            int32_t* tokens, size_t capacity, size_t* count);
/* The bytes that tokens stand for, without a terminating 0. special: control tokens too. */
BALLAST_API ballast_status ballast_detokenize(const ballast_model* model, const int32_t* tokens,
                                              size_t token_count, bool special, char* text,
                                              size_t capacity, size_t* length);
/* Whether generation ends at the token. */
BALLAST_API bool ballast_is_end(const ballast_model* model, int32_t token);

typedef struct ballast_message {
  const char* role; /* "system", "user" or "assistant" */
  const char* content;
} ballast_message;

/* The text of a conversation by the model's chat template, without a terminating 0. Tokenize it
 * with add_special false and parse_special true. add_answer: end with what comes before an answer.
 */
BALLAST_API ballast_status ballast_chat_format(const ballast_model* model,
                                               const ballast_message* messages,
                                               size_t message_count, bool add_answer, char* text,
                                               size_t capacity, size_t* length);

/* ---- Contexts: texts that a model reads and continues ------------------------------------- */

/* One text, its cache, and the memory of a forward pass. */
typedef struct ballast_context ballast_context;

BALLAST_API ballast_status ballast_context_new(const ballast_model* model,
                                               const ballast_cache_params* params,
                                               ballast_context** out);
BALLAST_API void ballast_context_free(ballast_context* context);
/* A copy that goes on by itself, which shares what was read: many questions about one text, many
 * agents on one beginning. Only once the prompt has ended. */
BALLAST_API ballast_status ballast_context_clone(const ballast_context* context,
                                                 ballast_context** out);

/* Reads tokens; cut a prompt as you like. */
BALLAST_API ballast_status ballast_context_read(ballast_context* context, const int32_t* tokens,
                                                size_t count);
/* The prompt has ended: the method summarises it, after a replay pass where it needs one.
 * ballast_context_generate() does this if you have not. */
BALLAST_API ballast_status ballast_context_finish_prompt(ballast_context* context);
/* The same, and what the cache costs: mean KL divergence of the next token from the exact cache's,
 * in nats, over passages of the text that are read again with both; below 0.01 answers are as from
 * the exact cache. -1: it cannot be measured (a stream, rolling positions, under 128 tokens). */
BALLAST_API ballast_status ballast_context_finish_prompt_measured(ballast_context* context,
                                                                  double* kl);
/* Divides `bytes` among all that the cache holds, without reading the text again; the text goes on
 * where it is. Wants protocol stream and a method with one budget (calibrated, replay), which holds
 * for what follows. The method's sink= first and window= last tokens are never dropped. */
BALLAST_API ballast_status ballast_context_compact(ballast_context* context, size_t bytes);
/* Logits of the last token read, info.vocabulary numbers; NULL before the first. Valid until the
 * context is used again. */
BALLAST_API const float* ballast_context_logits(const ballast_context* context);
/* Tokens read. */
BALLAST_API size_t ballast_context_tokens(const ballast_context* context);
/* The context's own cache, for the functions that only look. */
BALLAST_API const ballast_cache* ballast_context_cache(const ballast_context* context);

typedef struct ballast_generate_params {
  size_t size;
  size_t max_tokens;        /* 256; 0: until the model ends or has no position left */
  float temperature;        /* 0: always the likeliest token */
  float top_p;              /* 1 */
  float min_p;              /* 0 */
  float repetition_penalty; /* 1: none */
  size_t top_k;             /* 0: all */
  uint64_t seed;
  const char* const* stop; /* texts before which the answer ends */
  size_t stop_count;
  bool ignore_end; /* go on after the model's end tokens */
} ballast_generate_params;

BALLAST_API ballast_generate_params ballast_generate_default_params(void);

typedef enum ballast_finish {
  BALLAST_FINISH_END = 0,       /* the model ended the text */
  BALLAST_FINISH_STOP = 1,      /* a stop text appeared */
  BALLAST_FINISH_LENGTH = 2,    /* max_tokens were made */
  BALLAST_FINISH_POSITIONS = 3, /* the model has no position for another token */
  BALLAST_FINISH_CANCELLED = 4  /* on_text returned false */
} ballast_finish;

/* A piece of the answer, valid UTF-8 and not empty, of `length` bytes, not terminated. False ends
 * the answer. */
typedef bool (*ballast_text_callback)(const char* text, size_t length, void* user_data);

/* Continues the text. finish: may be NULL. The context then goes on from the end of the answer. */
BALLAST_API ballast_status ballast_context_generate(ballast_context* context,
                                                    const ballast_generate_params* params,
                                                    ballast_text_callback on_text, void* user_data,
                                                    ballast_finish* finish);

/* The context in a file, for the same model. */
BALLAST_API ballast_status ballast_context_save(const ballast_context* context, const char* path);
/* The same, packed: size is "1/16" or another preset of the model's basis, which `ballast
 * calibrate` makes. The cache must have every token. ballast_context_load() reads such files, too.
 */
BALLAST_API ballast_status ballast_context_save_packed(const ballast_context* context,
                                                       const char* path, const char* size);
/* params: of a packed file, with a method or bytes, what its cache becomes ("1/8" of its bytes);
 * otherwise threads alone count. NULL: the defaults. */
BALLAST_API ballast_status ballast_context_load(const ballast_model* model, const char* path,
                                                const ballast_cache_params* params,
                                                ballast_context** out);

/* ---- Libraries: documents in a folder, read once in sections, asked together --------------- */

/* See docs/running-models.md. A folder's documents are of one model, and any program may add some
 * meanwhile. */
typedef struct ballast_library ballast_library;

/* The folder may be missing until documents are added. */
BALLAST_API ballast_status ballast_library_open(const ballast_model* model, const char* folder,
                                                ballast_library** out);
BALLAST_API void ballast_library_free(ballast_library* library);
/* Takes in files and folders as `ballast library add` does: reads what is new, takes out what is
 * gone. Sections appear whole or not at all; the same call goes on after an error. */
BALLAST_API ballast_status ballast_library_add(ballast_library* library, const char* const* paths,
                                               size_t count);
/* name: as ballast_library_documents() names it. */
BALLAST_API ballast_status ballast_library_remove(ballast_library* library, const char* name);
/* json: an array as in `ballast library list --json`. It is valid until the next call. */
BALLAST_API ballast_status ballast_library_documents(ballast_library* library, const char** json);
/* on_text: may be NULL; receives the answer, if the library supports one. json: what `ballast
 * library ask --json` writes: answer, supported, citations. It is valid until the next call. */
BALLAST_API ballast_status ballast_library_ask(ballast_library* library, const char* question,
                                               const ballast_generate_params* params,
                                               ballast_text_callback on_text, void* user_data,
                                               const char** json);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BALLAST_H */
