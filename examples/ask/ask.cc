// Answers questions about a text from an eighth of the exact cache.
#include <ballast/engine/session.h>
#include <ballast/error.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

int main(int argc, char** argv) try {
  if (argc < 4) {
    std::cerr << "usage: ask MODEL TEXT QUESTION...\n";
    return 2;
  }
  const auto model = std::make_shared<const ballast::TextModel>(argv[1]);
  std::ifstream file(argv[2]);
  const std::string text{std::istreambuf_iterator<char>(file), {}};

  ballast::CacheOptions options;
  options.policy = model->model.policy_for("1/8");
  ballast::Session document(model, options);
  document.read_context(text);
  std::cerr << document.tokens() << " tokens in " << document.cache().bytes().used() << " bytes\n";
  for (int i = 3; i < argc; ++i) std::cout << document.ask(argv[i]).text << '\n';
  return 0;
} catch (const ballast::Error& error) {
  std::cerr << "ask: " << error.what() << '\n';
  return 1;
}
