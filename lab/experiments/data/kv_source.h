// A source of queries, keys and values: a file or a synthetic stream.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/attention.h"
#include "ballast/matrix.h"
#include "ballast/rotary.h"

namespace ballast {

/// Receives the fraction done of a long computation, 0 to 1, from any thread.
using Advance = std::function<void(double done)>;

struct KvShape {
  std::size_t layers = 0;
  std::size_t heads = 0;  ///< query heads, a multiple of kv_heads
  std::size_t kv_heads = 0;
  std::size_t tokens = 0;
  std::size_t key_dim = 0;  ///< of queries too
  std::size_t value_dim = 0;

  std::size_t group() const { return heads / kv_heads; }
};

class KvSource {
 public:
  enum class Part { query, key, value };

  virtual ~KvSource() = default;

  const KvShape& shape() const { return shape_; }
  /// The name in messages: a file, or a description.
  const std::string& name() const { return name_; }
  /// The number in the model of layer i of this source, both from 0.
  virtual std::size_t layer_number(std::size_t i) const { return i; }
  /// Scale and soft cap of the attention that the data is of; 1/sqrt(key dimension) unless known.
  virtual Logits logits() const;
  /// By which keys and queries are turned; nothing turns unless it is known.
  virtual Rotary rotary() const { return {}; }
  /// What a replay pass found of one KV head's tokens (Scoring::scores); empty: unknown.
  virtual std::vector<float> scores(std::size_t /*layer*/, std::size_t /*kv_head*/) const {
    return {};
  }
  /// The name of those scores (score= of the method replay); empty: there are none.
  virtual std::string score_name() const { return {}; }
  /// Whether the values are synthetic and therefore finite.
  virtual bool made_up() const { return false; }

  /// Tokens first, first + 1, … of one head into the rows of `out`. Safe to call concurrently.
  /// Throws Error that names the place of an element that is not finite.
  virtual void read(Part part, std::size_t layer, std::size_t head, std::size_t first,
                    MutableMatrix out) const = 0;
  /// `count` tokens.
  Matrix read(Part part, std::size_t layer, std::size_t head, std::size_t first,
              std::size_t count) const;

 protected:
  KvShape shape_;
  std::string name_;
};

std::string_view to_string(KvSource::Part part);

}  // namespace ballast
