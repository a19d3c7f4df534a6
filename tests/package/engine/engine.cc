// Opens the model file given, with its tokenizer, through the installed package.
#include <ballast/engine/model.h>
#include <ballast/engine/tokenizer.h>

#include <cstdio>

int main(int, char** argv) {
  const ballast::Model model{argv[1]};
  const ballast::Tokenizer tokenizer(ballast::read_vocabulary(*model.file().gguf()));
  const auto text = tokenizer.decode(tokenizer.encode("one two three"));
  std::printf("%d layers, decoded: %s\n", int(model.config().layers), text.c_str());
}
