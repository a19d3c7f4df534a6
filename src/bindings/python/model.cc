#include <pybind11/stl.h>

#include <optional>

#include "ballast/engine/chat.h"
#include "ballast/engine/gauge.h"
#include "ballast/engine/session.h"
#include "ballast/engine/vision.h"
#include "bindings/options.h"
#include "bindings/python/arrays.h"
#include "bindings/python/bindings.h"

namespace ballast::python {
namespace {

using TextModelPointer = std::shared_ptr<const TextModel>;

struct PyModel {
  TextModelPointer text;
  std::string mmproj;
  std::shared_ptr<const VisionModel> vision = {};  ///< once it has seen a picture

  const VisionModel& eyes() {
    if (!vision) vision = std::make_shared<VisionModel>(text->model, text->tokenizer, mmproj);
    return *vision;
  }
};

/// A context; an answer in the making holds it.
struct PyContext {
  explicit PyContext(Session made) : session(std::move(made)) {}

  Session session;
  std::vector<PictureTokens> pictures;  ///< until the prompt has ended
  std::atomic<bool> used = false;
};

template <typename Body>
auto with(PyContext& self, Body&& body) {
  const InUse use(self.used, "context");
  return unlocked([&] { return body(self.session); });
}

/// An answer, drawn piece by piece. The context is in use until it ends.
class PyAnswer {
 public:
  PyAnswer(std::shared_ptr<PyContext> context, const GenerateOptions& options)
      : context_(std::move(context)), use_(std::in_place, context_->used, "context") {
    generation_.emplace(unlocked([&] {
      Session& session = context_->session;
      session.read({});
      if (session.tokens() > 0 && !session.prompt_finished()) ballast::finish_prompt(session);
      return session.generate(options);
    }));
  }
  ~PyAnswer() { close(); }

  std::string next() {
    if (!use_) throw py::stop_iteration();
    std::string text;
    const bool more = unlocked([&] {
      while (generation_->step(text)) {
        if (!text.empty()) return true;
      }
      return false;
    });
    if (!more) {
      close();
      throw py::stop_iteration();
    }
    return text;
  }
  /// The context goes on from what was made so far.
  void close() {
    if (!use_) return;
    generation_->cancel();
    context_->session.take_in(*generation_);
    use_.reset();
  }
  const Generated& made() const { return generation_->result(); }

 private:
  std::shared_ptr<PyContext> context_;
  std::optional<InUse> use_;
  std::optional<Generation> generation_;
};

py::dict config_dict(const PyModel& self) {
  using py::literals::operator""_a;
  const ModelConfig& c = self.text->model.config();
  const Vocabulary& v = self.text->tokenizer.vocabulary();
  return py::dict("name"_a = c.name, "family"_a = std::string(to_string(c.family)),
                  "layers"_a = c.layers, "width"_a = c.width, "heads"_a = c.heads,
                  "kv_heads"_a = c.kv_heads, "key_dim"_a = c.key_dim, "value_dim"_a = c.value_dim,
                  "ffn_width"_a = c.ffn_width, "vocabulary"_a = c.vocabulary,
                  "max_positions"_a = c.max_positions, "bos"_a = v.bos, "eos"_a = v.eos,
                  "chat_template"_a = !v.chat_template.empty());
}

GenerateOptions generate_options(std::size_t max_tokens, float temperature, std::size_t top_k,
                                 float top_p, float min_p, float repetition_penalty,
                                 std::uint64_t seed, std::vector<std::string> stop,
                                 bool ignore_end) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.sampling.temperature = temperature;
  options.sampling.top_k = top_k;
  options.sampling.top_p = top_p;
  options.sampling.min_p = min_p;
  options.sampling.repetition_penalty = repetition_penalty;
  options.sampling.seed = seed;
  options.stop = std::move(stop);
  options.ignore_end = ignore_end;
  options.text_start = false;
  return options;
}

}  // namespace

TextModelPointer text_model(const py::object& model) { return model.cast<const PyModel&>().text; }

void add_model(py::module_& m) {
  using py::literals::operator""_a;
  py::class_<PyModel>(m, "_Model")
      .def(py::init([](const std::string& path, const std::string& mmproj) {
        return unlocked([&] { return PyModel{std::make_shared<const TextModel>(path), mmproj}; });
      }))
      .def_property_readonly("config", &config_dict)
      .def("shape", [](const PyModel& self,
                       std::size_t context) { return self.text->model.cache_shape(context); })
      .def("tokenize",
           [](const PyModel& self, const std::string& text, bool special, bool parse_special) {
             return unlocked([&] {
               return self.text->tokenizer.encode(text, {special, parse_special});
             });
           })
      .def("detokenize",
           [](const PyModel& self, const std::vector<Token>& tokens, bool special) {
             return to_valid_utf8(self.text->tokenizer.decode(tokens, {.special = special}));
           })
      .def("is_end",
           [](const PyModel& self, Token token) {
             return token >= 0 && static_cast<std::size_t>(token) < self.text->tokenizer.size() &&
                    self.text->tokenizer.is_end(token);
           })
      .def("format_chat",
           [](const PyModel& self, const std::vector<std::pair<std::string, std::string>>& messages,
              bool add_answer) {
             std::vector<ChatMessage> all;
             for (const auto& [role, content] : messages) all.push_back({role, content});
             const Tokenizer& tokenizer = self.text->tokenizer;
             return ChatTemplate::of(tokenizer).format(all, chat_options(tokenizer, add_answer));
           })
      .def("context",
           [](const PyModel& self, std::string method, py::object bytes, std::string protocol,
              std::string positions, std::string key_type, std::string value_type,
              std::uint64_t seed, std::size_t expected_tokens, int threads) {
             const CacheOptions options = CacheKeywords{std::move(method),
                                                        std::move(bytes),
                                                        std::move(protocol),
                                                        std::move(positions),
                                                        std::move(key_type),
                                                        std::move(value_type),
                                                        seed,
                                                        expected_tokens,
                                                        threads}
                                              .parse(&self.text->model);
             return unlocked(
                 [&] { return std::make_shared<PyContext>(Session(self.text, options)); });
           })
      .def("load_context",
           [](const PyModel& self, const std::string& path, int threads) {
             return unlocked([&] {
               return std::make_shared<PyContext>(
                   Session::load(self.text, path, make_pool(threads)));
             });
           })
      // Of a packed file; `like`: a context without tokens, of whose form it becomes.
      .def("unpack_context",
           [](const PyModel& self, const std::string& path, PyContext& like) {
             const CacheOptions options = like.session.cache().options();
             return unlocked([&] {
               return std::make_shared<PyContext>(
                   Session::load(self.text, path, options.pool, &options));
             });
           })
      // The words of the prompt before and after a question: the context and, for a chat, those of
      // the template.
      .def("question_form",
           [](PyModel& self, PyContext& context, const std::string& text, bool chat,
              const std::string& system, const std::vector<std::string>& images) {
             require(images.empty() || chat, "images need the model's chat template: chat=True");
             const VisionModel* eyes = images.empty() ? nullptr : &self.eyes();
             return unlocked([&] {
               std::string places;
               for (const std::string& path : images) {
                 context.pictures.push_back(eyes->read(read_picture(path)));
                 places += eyes->place_holder();
               }
               const Tokenizer& tokenizer = self.text->tokenizer;
               const std::string shown = text.empty() ? "" : places + text;
               QuestionForm form = chat ? QuestionForm::from_template(tokenizer, system, shown)
                                        : QuestionForm::raw(shown);
               if (text.empty()) form.before += places;
               context.session.set_form(form);
               const std::vector<Token> tokens = form.begin(tokenizer);
               return eyes == nullptr ? tokens : eyes->place(tokens, context.pictures);
             });
           });

  py::class_<PyContext, std::shared_ptr<PyContext>>(m, "_Context")
      .def("read",
           [](PyContext& self, const std::vector<Token>& tokens) {
             with(self, [&](Session& s) { s.read(tokens); });
           })
      .def("encode_more",
           [](PyContext& self, const std::string& text, bool first) {
             const Tokenizer& tokenizer = self.session.model().tokenizer;
             return first ? tokenizer.encode(text) : ballast::encode_more(tokenizer, text, false);
           })
      .def("question",
           [](PyContext& self, const std::string& text) {
             return self.session.form().question(self.session.model().tokenizer, text);
           })
      .def("score",
           [](PyContext& self, const std::vector<Token>& tokens) {
             const std::vector<float> losses =
                 with(self, [&](Session& s) { return s.score(tokens); });
             return NewArray<float>(std::span(losses)).object;
           })
      .def("finish_prompt",
           [](PyContext& self, bool measure) {
             const auto gauge =
                 with(self, [&](Session& s) { return ballast::finish_prompt(s, measure); });
             self.pictures.clear();
             return gauge ? std::optional(gauge->kl) : std::nullopt;
           })
      .def("compact", [](PyContext& self,
                         std::size_t bytes) { with(self, [&](Session& s) { s.compact(bytes); }); })
      .def_property_readonly("prompt_finished",
                             [](PyContext& self) { return self.session.prompt_finished(); })
      .def("logits",
           [](PyContext& self) {
             const InUse use(self.used, "context");
             const std::span<const float> logits = self.session.logits();
             return NewArray<float>(logits).object;
           })
      .def("clone",
           [](PyContext& self) {
             return with(self, [](Session& s) { return std::make_shared<PyContext>(s.clone()); });
           })
      .def("save",
           [](PyContext& self, const std::string& path, const std::string& pack) {
             with(self, [&](Session& s) { s.save(path, pack); });
           })
      .def("tokens", [](PyContext& self) { return self.session.tokens(); })
      .def("entries",
           [](PyContext& self, std::size_t layer) {
             const InUse use(self.used, "context");
             const Cache& cache = self.session.cache();
             require(layer < cache.shape().layers, "layer {} of a cache of {} layers", layer,
                     cache.shape().layers);
             return cache.entries(layer);
           })
      .def("bytes",
           [](PyContext& self) {
             const InUse use(self.used, "context");
             return bytes_dict(self.session.cache().bytes());
           })
      .def("exact_bytes",
           [](PyContext& self) {
             const InUse use(self.used, "context");
             return self.session.model().model.exact_bytes(self.session.cache());
           })
      .def("kept",
           [](PyContext& self, std::size_t layer, std::size_t head) {
             const InUse use(self.used, "context");
             return kept_arrays(self.session.cache().kept(layer, head));
           })
      .def("generate",
           [](const std::shared_ptr<PyContext>& self, std::size_t max_tokens, float temperature,
              std::size_t top_k, float top_p, float min_p, float repetition_penalty,
              std::uint64_t seed, std::vector<std::string> stop, bool ignore_end) {
             return std::make_unique<PyAnswer>(
                 self, generate_options(max_tokens, temperature, top_k, top_p, min_p,
                                        repetition_penalty, seed, std::move(stop), ignore_end));
           });

  py::class_<PyAnswer>(
      m, "Answer",
      "An answer in the making: iterate over its pieces of text. The context is in "
      "use until the\nend, or until close(), which keeps what was made so far.")
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", &PyAnswer::next)
      .def("close", &PyAnswer::close, "Ends the answer here.")
      .def_property_readonly(
          "text", [](const PyAnswer& self) { return self.made().text; }, "All text so far.")
      .def_property_readonly(
          "tokens",
          [](const PyAnswer& self) {
            std::vector<Token> out;
            for (const GeneratedToken& t : self.made().tokens) out.push_back(t.chosen.token);
            return out;
          },
          "Ids of the tokens made so far.")
      .def_property_readonly(
          "log_probabilities",
          [](const PyAnswer& self) {
            std::vector<float> out;
            for (const GeneratedToken& t : self.made().tokens) {
              out.push_back(t.chosen.log_probability);
            }
            return out;
          },
          "Of each token, by the model's own probabilities, in nats.")
      .def_property_readonly(
          "finish", [](const PyAnswer& self) { return std::string(to_string(self.made().finish)); },
          "Why the text ended: 'end', 'stop', 'length', 'positions' or 'cancelled'.");
}

}  // namespace ballast::python
