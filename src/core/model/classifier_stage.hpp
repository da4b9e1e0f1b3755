// A stage whose results are classifiers.
#pragma once

#include "base/stage.hpp"
#include "linear/problem.hpp"
#include "model/forest.hpp"

namespace bonsai {

class ClassifierStage : public Stage {
  public:
    // Moves all results out of the stage, as a forest. Throws std::invalid_argument unless the stage is
    // complete.
    virtual OwnedForest finish(Pool& pool, TrainReport& report) = 0;
};

}  // namespace bonsai
