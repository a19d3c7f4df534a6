"""What LeakSanitizer finds when caches, methods in Python, models and experiments come and go.

Runs itself under liblsan, which GCC has. Without it, or where it may not run, the test is skipped
(77).
"""
import os
import subprocess
import sys
import tempfile

SOURCE = os.environ["BALLAST_SOURCE"]
ROUNDS = 40


def work():
    import gc
    import numpy as np
    import ballast

    @ballast.register_method
    class Newest(ballast.Method):
        name = "test-newest"

        def rank(self, block):
            return block.positions

    shape = ballast.Shape(layers=2, kv_heads=2, queries_per_kv_head=2, key_dim=32)
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((80, heads, 32)).astype(np.float32) for heads in (2, 2, 4)]
    with tempfile.TemporaryDirectory() as folder:
        for i in range(ROUNDS):
            method = ["exact", "balancekv:rate=0.25", "test-newest:rate=0.5", "h2o:rate=0.5"][i % 4]
            cache = ballast.Cache(shape, method=method)
            for layer in range(2):
                cache.forward(layer, *arrays)
            cache.finish_prompt()
            ballast.attention(arrays[2][:, 0], cache.segments())
            cache.kept()
            cache.clone().save(folder + "/cache")
            ballast.Cache.load(folder + "/cache")
            try:
                cache.forward(0, arrays[0].astype(np.float64), *arrays[1:])
            except TypeError:
                pass
    model = ballast.Model(os.path.join(SOURCE, "models", "ballast-mini.gguf"))
    for i in range(3):
        context = model.read("one two three " * 30, method="uniform:budget=80")
        "".join(context.ask("why?", max_tokens=3))
        answer = context.generate(max_tokens=3)
        next(answer, None)
        answer.close()
    for wrong in ({}, {"no_such": 1}):
        try:
            ballast.evaluate("lines", model=model, methods=["uniform", "test-newest"], rates=0.5,
                             lines=[10], repeat=1, max_tokens=2, **wrong)
        except ValueError:
            pass
    del cache, model, context, answer
    gc.collect()


def main():
    if "BALLAST_LOOKS_FOR_LEAKS" in os.environ:
        return work()
    try:
        library = subprocess.run(["gcc", "-print-file-name=liblsan.so"], capture_output=True,
                                 text=True).stdout.strip()
    except OSError:
        library = ""
    if not os.path.isabs(library):
        print("GCC has no liblsan.so: skipped")
        return 77
    with tempfile.NamedTemporaryFile("w", suffix=".supp") as allowed:
        # Names of methods live as long as the process.
        allowed.write("leak:keep_text\n")
        allowed.flush()
        # 97: there are leaks, as the interpreter itself always has some.
        environment = dict(os.environ, BALLAST_LOOKS_FOR_LEAKS="1", LD_PRELOAD=library,
                           PYTHONMALLOC="malloc", LSAN_OPTIONS=(
            f"exitcode=97:fast_unwind_on_malloc=0:suppressions={allowed.name}"))
        done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True,
                              text=True)
    if "LeakSanitizer has encountered a fatal error" in done.stderr:
        print("LeakSanitizer may not run here: skipped")
        return 77
    found = [leak for leak in done.stderr.split("\n\n") if "leak of" in leak and "_ballast" in leak]
    if done.returncode not in (0, 97) or "Traceback" in done.stderr or found:
        print(done.stderr[-3000:] if not found else "\n\n".join(found))
        return 1
    print(f"no leak of Ballast's, {done.stderr.count('leak of')} of the interpreter's")
    return 0


if __name__ == "__main__":
    sys.exit(main())
