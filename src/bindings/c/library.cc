#include "library/library.h"

#include <optional>
#include <string>
#include <vector>

#include "bindings/c/guard.h"
#include "bindings/c/model.h"
#include "library/library_json.h"
#include "library/reading.h"

struct ballast_library {
  ballast::Library library;
  std::shared_ptr<const ballast::TextModel> model;
  std::optional<ballast::LibraryAsker> asker;  ///< once it is asked
  std::string json;                            ///< what the last call returned

  ballast_library(std::shared_ptr<const ballast::TextModel> text, const char* folder)
      : library(folder), model(std::move(text)) {}
};

using namespace ballast;     // NOLINT
using namespace ballast::c;  // NOLINT

ballast_status ballast_library_open(const ballast_model* model, const char* folder,
                                    ballast_library** out) {
  return guarded([&] {
    given(out, "out");
    *out = new ballast_library(given(model, "model").text, &given(folder, "folder"));
  });
}

void ballast_library_free(ballast_library* library) { delete library; }

ballast_status ballast_library_add(ballast_library* library, const char* const* paths,
                                   size_t count) {
  return guarded([&] {
    ballast_library& l = given(library, "library");
    std::vector<std::string> all;
    for (size_t i = 0; i < count; ++i)
      all.emplace_back(&given((&given(paths, "paths"))[i], "path"));
    add_documents(l.library, l.model, SectionStorage(l.model->model, "", ""), all);
  });
}

ballast_status ballast_library_remove(ballast_library* library, const char* name) {
  return guarded([&] { given(library, "library").library.remove_named({&given(name, "name")}); });
}

ballast_status ballast_library_documents(ballast_library* library, const char** json) {
  return guarded([&] {
    ballast_library& l = given(library, "library");
    l.json = to_text(to_json(*l.library.content(), l.library));
    given(json, "json") = l.json.c_str();
  });
}

ballast_status ballast_library_ask(ballast_library* library, const char* question,
                                   const ballast_generate_params* params,
                                   ballast_text_callback on_text, void* user_data,
                                   const char** json) {
  return guarded([&] {
    ballast_library& l = given(library, "library");
    const std::string asked = &given(question, "question");
    AskOptions options;
    options.generate = generate_options(params);
    require_model(l.library, *l.library.content(), l.model->model);
    if (!l.asker) l.asker.emplace(l.library, l.model);
    const LibraryAnswer answer = l.asker->ask(asked, options, [&](std::string_view text) {
      return on_text == nullptr || on_text(text.data(), text.size(), user_data);
    });
    l.json = to_text(to_json(asked, answer, l.library));
    given(json, "json") = l.json.c_str();
  });
}
