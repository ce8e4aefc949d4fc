// The native methods of ai.mobileft.Native, which call the C API. Objects are passed as pointers in a long, and texts
// as UTF-8 in byte[], because JNI's own strings are not UTF-8. The Java code ensures that only one call at a time uses
// an object, and that the object stays open meanwhile.

#include <jni.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "runtime/c_api/mobile_ft.h"

namespace {

/// A Java exception is already pending.
struct Thrown {};

/// A call of the C API failed; mft_last_error() has the reason.
struct Failed {
  mft_status status;
};

void check(mft_status status) {
  if (status != MFT_OK) throw Failed{status};
}

/// Checks a result of JNI, which is NULL if Java threw an exception.
template <typename T>
T made(T object) {
  if (object == nullptr) throw Thrown{};
  return object;
}

/// NULL if Java threw an exception.
jbyteArray bytes_of(JNIEnv* env, const char* text) {
  const auto count = static_cast<jsize>(std::strlen(text));
  jbyteArray bytes = env->NewByteArray(count);
  if (bytes != nullptr) env->SetByteArrayRegion(bytes, 0, count, reinterpret_cast<const jbyte*>(text));
  return bytes;
}

/// Returns "" for null, which means none in the C API.
std::string text_of(JNIEnv* env, jbyteArray bytes) {
  if (bytes == nullptr) return "";
  std::string text(static_cast<size_t>(env->GetArrayLength(bytes)), 0);
  env->GetByteArrayRegion(bytes, 0, static_cast<jsize>(text.size()), reinterpret_cast<jbyte*>(text.data()));
  return text;
}

std::vector<std::string> texts_of(JNIEnv* env, jobjectArray array) {
  std::vector<std::string> texts;
  for (jsize i = 0; i < env->GetArrayLength(array); ++i) {
    auto* bytes = static_cast<jbyteArray>(env->GetObjectArrayElement(array, i));
    texts.push_back(text_of(env, bytes));
    env->DeleteLocalRef(bytes);  // a frame has room for only a few references
  }
  return texts;
}

template <typename T>
T* object(jlong pointer) {
  return reinterpret_cast<T*>(pointer);
}

template <typename T>
jlong pointer(T* object) {
  return reinterpret_cast<jlong>(object);
}

/// Throws Native.exception() for a failed call.
jthrowable exception(JNIEnv* env, jclass native, mft_status status, const char* message) {
  jmethodID make = made(env->GetStaticMethodID(native, "exception", "(I[B)Ljava/lang/RuntimeException;"));
  jbyteArray text = made(bytes_of(env, message));
  jobject result = env->CallStaticObjectMethod(native, make, static_cast<jint>(status), text);
  if (env->ExceptionCheck()) throw Thrown{};
  return static_cast<jthrowable>(result);
}

void throw_java(JNIEnv* env, jclass native, mft_status status, const char* message) {
  try {
    env->Throw(exception(env, native, status, message));
  } catch (const Thrown&) {
  }
}

/// Runs `body` and turns its error into a Java exception. The result is not used then.
template <typename Body>
auto guarded(JNIEnv* env, jclass native, const Body& body) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (const Thrown&) {
  } catch (const Failed& failed) {
    throw_java(env, native, failed.status, mft_last_error());
  } catch (const std::bad_alloc&) {
    throw_java(env, native, MFT_ERROR_FAILED, "out of memory");
  }
  return decltype(body())();
}

using Options = std::unique_ptr<mft_options, decltype(&mft_options_free)>;

/// Kinds of options, as Native.java has them.
enum Kind : jint { kTrain, kGenerate, kLearn };

Options new_options(jint kind) {
  Options options(kind == kTrain      ? mft_train_options_new()
                  : kind == kGenerate ? mft_generate_options_new()
                                      : mft_learn_options_new(),
                  mft_options_free);
  if (options == nullptr) throw std::bad_alloc();
  return options;
}

Options options_of(JNIEnv* env, Kind kind, jobjectArray given) {
  Options options = new_options(kind);
  const std::vector<std::string> texts = texts_of(env, given);
  for (size_t i = 0; i + 1 < texts.size(); i += 2) {
    check(mft_options_set(options.get(), texts[i].c_str(), texts[i + 1].c_str()));
  }
  return options;
}

/// Messages that point into `texts`.
std::vector<mft_message> messages_of(const std::vector<std::string>& texts) {
  std::vector<mft_message> messages;
  for (size_t i = 0; i + 1 < texts.size(); i += 2) messages.push_back({texts[i].c_str(), texts[i + 1].c_str()});
  return messages;
}

/// The Java listener of a call, and its exception. After an exception, the listener is not called again, and the call
/// is asked to end.
class Listener {
 public:
  Listener(JNIEnv* env, jclass native, jobject listener, const char* method, const char* signature)
      : env_(env), native_(native), listener_(listener) {
    method_ = made(env->GetMethodID(env->GetObjectClass(listener), method, signature));
  }

  /// Returns nonzero to end the call.
  int hear(const char* text) noexcept {
    if (thrown_ != nullptr) return 1;
    jbyteArray bytes = bytes_of(env_, text);
    if (bytes == nullptr) return take_thrown();
    const int end = answer(env_->CallBooleanMethod(listener_, method_, bytes));
    env_->DeleteLocalRef(bytes);  // millions may be created before the frame returns to Java
    return end;
  }

  int hear(int64_t token) noexcept {
    if (thrown_ != nullptr) return 1;
    return answer(env_->CallBooleanMethod(listener_, method_, static_cast<jlong>(token)));
  }

  /// After the call: throws the listener's exception, with the call's own error as a suppressed one, or else the call's
  /// error.
  void finish(mft_status status) {
    if (thrown_ == nullptr) return check(status);
    if (status == MFT_ERROR_FAILED) {
      jmethodID add =
          made(env_->GetMethodID(env_->GetObjectClass(thrown_), "addSuppressed", "(Ljava/lang/Throwable;)V"));
      env_->CallVoidMethod(thrown_, add, exception(env_, native_, status, mft_last_error()));
      if (env_->ExceptionCheck()) throw Thrown{};
    }
    env_->Throw(thrown_);
    throw Thrown{};
  }

 private:
  int answer(jboolean go_on) noexcept { return env_->ExceptionCheck() ? take_thrown() : !go_on; }

  /// Keeps the exception until the call ends, because JNI cannot be used while an exception is pending.
  int take_thrown() noexcept {
    thrown_ = env_->ExceptionOccurred();
    env_->ExceptionClear();
    return 1;
  }

  JNIEnv* env_;
  jclass native_;
  jobject listener_;
  jmethodID method_;
  jthrowable thrown_ = nullptr;
};

Listener bytes_listener(JNIEnv* env, jclass native, jobject listener) {
  return Listener(env, native, listener, "onBytes", "([B)Z");
}

int hear_text(const char* text, void* listener) { return static_cast<Listener*>(listener)->hear(text); }
int hear_token(int64_t token, void* listener) { return static_cast<Listener*>(listener)->hear(token); }

int keep_event(const char* event, void* text) {
  *static_cast<std::string*>(text) = event;
  return 0;
}

jlongArray longs_of(JNIEnv* env, const std::vector<jlong>& values) {
  const auto count = static_cast<jsize>(values.size());
  jlongArray longs = made(env->NewLongArray(count));
  env->SetLongArrayRegion(longs, 0, count, values.data());
  return longs;
}

}  // namespace

#define NATIVE(type, name) extern "C" JNIEXPORT type JNICALL Java_ai_mobileft_Native_##name

NATIVE(void, checkOption)(JNIEnv* env, jclass native, jint kind, jbyteArray name, jbyteArray value) {
  guarded(env, native, [&] {
    const Options options = new_options(kind);
    check(mft_options_set(options.get(), text_of(env, name).c_str(), text_of(env, value).c_str()));
  });
}

NATIVE(jbyteArray, defaultOption)(JNIEnv* env, jclass native, jint kind, jbyteArray name) {
  return guarded(env, native, [&] {
    const Options options = new_options(kind);
    const char* value = mft_options_get(options.get(), text_of(env, name).c_str());
    return value == nullptr ? nullptr : made(bytes_of(env, value));
  });
}

NATIVE(jlong, openTraining)
(JNIEnv* env, jclass native, jbyteArray bundle, jbyteArray data, jbyteArray valid, jbyteArray adapter, jbyteArray out,
 jboolean resume, jobjectArray options) {
  return guarded(env, native, [&] {
    const std::string bundle_text = text_of(env, bundle), data_text = text_of(env, data);
    const std::string valid_text = text_of(env, valid), adapter_text = text_of(env, adapter);
    const std::string out_text = text_of(env, out);
    const mft_training_files files = {bundle_text.c_str(),  data_text.c_str(), valid_text.c_str(),
                                      adapter_text.c_str(), out_text.c_str(),  resume};
    mft_training* training = nullptr;
    check(mft_training_open(&files, options_of(env, kTrain, options).get(), &training));
    return pointer(training);
  });
}

NATIVE(void, closeTraining)(JNIEnv*, jclass, jlong training) { mft_training_close(object<mft_training>(training)); }

NATIVE(void, runTraining)(JNIEnv* env, jclass native, jlong training, jobject events) {
  guarded(env, native, [&] {
    Listener listener = bytes_listener(env, native, events);
    listener.finish(mft_training_run(object<mft_training>(training), hear_text, &listener));
  });
}

NATIVE(jboolean, stepTraining)(JNIEnv* env, jclass native, jlong training, jobject events) {
  return guarded(env, native, [&]() -> jboolean {
    Listener listener = bytes_listener(env, native, events);
    int more = 0;
    listener.finish(mft_training_step(object<mft_training>(training), hear_text, &listener, &more));
    return more != 0;
  });
}

NATIVE(void, cancelTraining)(JNIEnv*, jclass, jlong training) { mft_training_cancel(object<mft_training>(training)); }

NATIVE(void, trustKey)(JNIEnv* env, jclass native, jbyteArray pem) {
  guarded(env, native, [&] { check(mft_trust_key(text_of(env, pem).c_str())); });
}

NATIVE(jlong, openBundle)(JNIEnv* env, jclass native, jbyteArray folder) {
  return guarded(env, native, [&] {
    mft_bundle* bundle = nullptr;
    check(mft_bundle_open(text_of(env, folder).c_str(), &bundle));
    return pointer(bundle);
  });
}

NATIVE(void, closeBundle)(JNIEnv*, jclass, jlong bundle) { mft_bundle_close(object<mft_bundle>(bundle)); }

NATIVE(jlong, vocabSize)(JNIEnv*, jclass, jlong bundle) { return mft_bundle_vocab_size(object<mft_bundle>(bundle)); }

NATIVE(jlong, maxSeqLen)(JNIEnv*, jclass, jlong bundle) { return mft_bundle_max_seq_len(object<mft_bundle>(bundle)); }

NATIVE(jbyteArray, plan)(JNIEnv* env, jclass native, jlong bundle, jobjectArray options) {
  return guarded(env, native, [&] {
    std::string plan;
    check(mft_bundle_plan(object<mft_bundle>(bundle), options_of(env, kTrain, options).get(), keep_event, &plan));
    return made(bytes_of(env, plan.c_str()));
  });
}

NATIVE(jdoubleArray, evaluate)
(JNIEnv* env, jclass native, jlong bundle, jbyteArray adapter, jbyteArray token_file) {
  return guarded(env, native, [&] {
    mft_evaluation evaluation;
    check(mft_evaluate(object<mft_bundle>(bundle), text_of(env, adapter).c_str(), text_of(env, token_file).c_str(),
                       &evaluation));
    const jdouble values[] = {evaluation.loss, static_cast<jdouble>(evaluation.targets)};
    jdoubleArray result = made(env->NewDoubleArray(2));
    env->SetDoubleArrayRegion(result, 0, 2, values);
    return result;
  });
}

NATIVE(void, generate)
(JNIEnv* env, jclass native, jlong bundle, jbyteArray adapter, jobject prompt, jint position, jint count,
 jobjectArray options, jobject tokens) {
  guarded(env, native, [&] {
    const auto* begin = static_cast<const int64_t*>(env->GetDirectBufferAddress(prompt));
    if (reinterpret_cast<uintptr_t>(begin) % alignof(int64_t) != 0) {
      return throw_java(env, native, MFT_ERROR_ARGUMENT, "prompt: must be aligned to 8 bytes");
    }
    Listener listener(env, native, tokens, "onToken", "(J)Z");
    listener.finish(mft_generate(object<mft_bundle>(bundle), text_of(env, adapter).c_str(), begin + position,
                                 static_cast<size_t>(count), options_of(env, kGenerate, options).get(), hear_token,
                                 &listener));
  });
}

NATIVE(void, chat)
(JNIEnv* env, jclass native, jlong bundle, jbyteArray adapter, jobjectArray messages, jobjectArray options,
 jobject pieces) {
  guarded(env, native, [&] {
    const std::vector<std::string> texts = texts_of(env, messages);
    const std::vector<mft_message> chat = messages_of(texts);
    Listener listener = bytes_listener(env, native, pieces);
    listener.finish(mft_chat(object<mft_bundle>(bundle), text_of(env, adapter).c_str(), chat.data(), chat.size(),
                             options_of(env, kGenerate, options).get(), hear_text, &listener));
  });
}

NATIVE(void, chatJson)
(JNIEnv* env, jclass native, jlong bundle, jbyteArray adapter, jbyteArray json, jobjectArray options, jobject pieces) {
  guarded(env, native, [&] {
    Listener listener = bytes_listener(env, native, pieces);
    listener.finish(mft_chat_json(object<mft_bundle>(bundle), text_of(env, adapter).c_str(), text_of(env, json).c_str(),
                                  options_of(env, kGenerate, options).get(), hear_text, &listener));
  });
}

NATIVE(void, cancelBundle)(JNIEnv*, jclass, jlong bundle) { mft_bundle_cancel(object<mft_bundle>(bundle)); }

NATIVE(jlong, openDataset)(JNIEnv* env, jclass native, jbyteArray bundle, jbyteArray rows) {
  return guarded(env, native, [&] {
    mft_dataset* dataset = nullptr;
    check(mft_dataset_open(text_of(env, bundle).c_str(), text_of(env, rows).c_str(), &dataset));
    return pointer(dataset);
  });
}

NATIVE(void, closeDataset)(JNIEnv*, jclass, jlong dataset) { mft_dataset_close(object<mft_dataset>(dataset)); }

NATIVE(void, addChat)(JNIEnv* env, jclass native, jlong dataset, jobjectArray messages) {
  guarded(env, native, [&] {
    const std::vector<std::string> texts = texts_of(env, messages);
    const std::vector<mft_message> chat = messages_of(texts);
    check(mft_dataset_add_chat(object<mft_dataset>(dataset), chat.data(), chat.size()));
  });
}

NATIVE(void, addPair)(JNIEnv* env, jclass native, jlong dataset, jbyteArray prompt, jbyteArray completion) {
  guarded(env, native, [&] {
    check(mft_dataset_add_pair(object<mft_dataset>(dataset), text_of(env, prompt).c_str(),
                               text_of(env, completion).c_str()));
  });
}

NATIVE(void, addText)(JNIEnv* env, jclass native, jlong dataset, jbyteArray text) {
  guarded(env, native, [&] { check(mft_dataset_add_text(object<mft_dataset>(dataset), text_of(env, text).c_str())); });
}

NATIVE(void, addRow)(JNIEnv* env, jclass native, jlong dataset, jbyteArray json) {
  guarded(env, native, [&] { check(mft_dataset_add_row(object<mft_dataset>(dataset), text_of(env, json).c_str())); });
}

NATIVE(jlong, rows)(JNIEnv*, jclass, jlong dataset) { return mft_dataset_rows(object<mft_dataset>(dataset)); }

NATIVE(jlongArray, writeTokens)
(JNIEnv* env, jclass native, jlong dataset, jobjectArray options, jbyteArray token_file) {
  return guarded(env, native, [&] {
    mft_dataset_stats stats;
    check(mft_dataset_write_tokens(object<mft_dataset>(dataset), options_of(env, kTrain, options).get(),
                                   text_of(env, token_file).c_str(), &stats));
    return longs_of(env, {stats.rows, stats.sequences, stats.tokens, stats.target_tokens, stats.truncated,
                          stats.dropped, stats.bad});
  });
}

NATIVE(jlong, openLearner)(JNIEnv* env, jclass native, jbyteArray bundle, jbyteArray folder) {
  return guarded(env, native, [&] {
    mft_learner* learner = nullptr;
    check(mft_learner_open(text_of(env, bundle).c_str(), text_of(env, folder).c_str(), &learner));
    return pointer(learner);
  });
}

NATIVE(void, closeLearner)(JNIEnv*, jclass, jlong learner) { mft_learner_close(object<mft_learner>(learner)); }

NATIVE(void, learn)
(JNIEnv* env, jclass native, jlong learner, jbyteArray rows, jobjectArray options, jobject events) {
  guarded(env, native, [&] {
    Listener listener = bytes_listener(env, native, events);
    listener.finish(mft_learner_learn(object<mft_learner>(learner), text_of(env, rows).c_str(),
                                      options_of(env, kLearn, options).get(), hear_text, &listener));
  });
}

NATIVE(void, forget)(JNIEnv* env, jclass native, jlong learner, jobjectArray ids, jobject events) {
  guarded(env, native, [&] {
    const std::vector<std::string> texts = texts_of(env, ids);
    std::vector<const char*> given;
    for (const std::string& id : texts) given.push_back(id.c_str());
    Listener listener = bytes_listener(env, native, events);
    listener.finish(mft_learner_forget(object<mft_learner>(learner), given.data(), given.size(), hear_text, &listener));
  });
}

NATIVE(void, rollBack)(JNIEnv* env, jclass native, jlong learner, jlong version) {
  guarded(env, native, [&] { check(mft_learner_roll_back(object<mft_learner>(learner), version)); });
}

NATIVE(jbyteArray, learnerState)(JNIEnv* env, jclass native, jlong learner) {
  return guarded(env, native, [&] {
    std::string state;
    check(mft_learner_state(object<mft_learner>(learner), keep_event, &state));
    return made(bytes_of(env, state.c_str()));
  });
}

NATIVE(void, cancelLearner)(JNIEnv*, jclass, jlong learner) { mft_learner_cancel(object<mft_learner>(learner)); }

NATIVE(jlongArray, processMemory)(JNIEnv* env, jclass native) {
  return guarded(env, native, [&] {
    const mft_memory memory = mft_process_memory();
    return longs_of(
        env, {static_cast<jlong>(memory.rss), static_cast<jlong>(memory.anon), static_cast<jlong>(memory.peak_rss)});
  });
}
