// A stage whose results are classifiers.
#pragma once

#include "base/stage.hpp"
#include "linear/problem.hpp"
#include "model/forest.hpp"

namespace bonsai {

class ClassifierStage : public Stage {
  public:
    // The forest of all results, which leave the stage. Throws std::invalid_argument unless it is complete.
    virtual OwnedForest finish(Pool& pool, TrainReport& report) = 0;
};

}  // namespace bonsai
