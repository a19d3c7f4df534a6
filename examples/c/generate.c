/* Reads a text with a model, keeps its cache in a share of the bytes, and continues it.
 *
 *   cc -std=c99 generate.c -o generate $(pkg-config --cflags --libs ballast)
 *   ./generate model.gguf "$(cat story.txt)" 1/8 */
#include <ballast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(ballast_status status) {
  if (status == BALLAST_OK) return;
  fprintf(stderr, "generate: %s\n", ballast_last_error());
  exit(1);
}

static bool print(const char *text, size_t length, void *user_data) {
  (void)user_data;
  fwrite(text, 1, length, stdout);
  fflush(stdout);
  return true;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: generate MODEL TEXT [BYTES]\n");
    return 2;
  }
  ballast_model *model;
  check(ballast_model_load(argv[1], &model));

  size_t count;
  check(ballast_tokenize(model, argv[2], strlen(argv[2]), true, false, NULL, 0, &count));
  int32_t *tokens = malloc((count + 1) * sizeof(int32_t));
  if (!tokens) return 1;
  check(ballast_tokenize(model, argv[2], strlen(argv[2]), true, false, tokens, count, &count));

  ballast_cache_params params = ballast_cache_default_params();
  if (argc > 3) params.bytes = argv[3];
  ballast_context *context;
  check(ballast_context_new(model, &params, &context));
  check(ballast_context_read(context, tokens, count));

  ballast_generate_params generate = ballast_generate_default_params();
  generate.max_tokens = 32;
  check(ballast_context_generate(context, &generate, print, NULL, NULL));
  printf("\n");

  ballast_context_free(context);
  ballast_model_free(model);
  free(tokens);
  return 0;
}
