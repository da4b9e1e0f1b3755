// A stage whose results are classifiers.
#pragma once

#include <functional>

#include "base/bytes.hpp"
#include "base/stage.hpp"
#include "linear/problem.hpp"
#include "model/forest.hpp"

namespace bonsai {

class ClassifierStage : public Stage {
  public:
    // Returns the bytes of a unit's result; several threads may call it.
    using Fetch = std::function<Bytes(size_t unit)>;

    // Keeps no weights of the results that follow: `finish` fetches them. Returns whether the stage can.
    virtual bool leave_weights() { return false; }
    // Moves all results out of the stage, as a forest. Throws std::invalid_argument unless the stage is
    // complete. `fetch` is needed after leave_weights.
    virtual OwnedForest finish(Pool& pool, TrainReport& report, const Fetch& fetch = nullptr) = 0;
};

}  // namespace bonsai
