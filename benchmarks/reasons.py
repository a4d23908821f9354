"""Why a target is missed, where it is: what RESULTS.md says beside the figure.

By the key of a comparison and the name of a rival. What is met is not told.
"""

_KERNELS = (
    "What is left of a step are TensorFlow's kernels (see the profile below):"
    " its convolutions, forward and backward, take most of the time at this"
    " size; 'bare loop' is a loop of nothing else."
)

_LESS_THAN_TWO_CORES = (
    "tfnet's parts work on both cores and wait for each other at every step, so"
    " it loses most where others use a core of the machine: of the turns of"
    " 2026-12-03 the last two had two thirds of its images/s in the first,"
    " while PyTorch with one thread and the bare loop kept theirs."
)

REASONS: dict[tuple[str, str], str] = {
    ("batch-4", "best PyTorch"): f"{_KERNELS} {_LESS_THAN_TWO_CORES}",
    ("batch-4", "best Keras `fit`"): _LESS_THAN_TWO_CORES,
    ("growth", "on 10,000"): (
        "To read an image at random from a file takes some 6 microseconds of a"
        " core beside the training, 0.5 in memory; the order of 4 million takes"
        " 0.7 s once an epoch, of which this is a third."
    ),
    ("devices-4", "one device"): (
        "Each of the four works on 64 images with a thread of its own, on two"
        " cores; the turns range over a quarter, with the machine's other work."
    ),
    ("batch-4", "best JAX"): (
        f"{_KERNELS} {_LESS_THAN_TWO_CORES} At this size XLA's"
        " convolutions, called one step at a time, are the fastest of the"
        " peers; from 64 on they are the slowest."
    ),
    ("batch-1024", "best Keras `fit`"): (
        "At this size both spend their time in the same convolutions, and"
        " overhead, which is what a trainer can save, is little of it; what"
        " tfnet is ahead comes from working on parts of the batch at once."
    ),
    ("recipe", "the seed's script and torch.save"): (
        "Some 17 of its seconds are 25,000 steps of batch 4, which are bound"
        " by their kernels (see below); the others are TensorFlow's import,"
        " the export, which is loaded back and compared, and the report."
    ),
    ("predict", "a TensorFlow script that decodes in tf.data"): (
        "Half of the time is the import of TensorFlow, for both; tfnet's is"
        " shorter by matplotlib, which Keras imports for its galleries, and by"
        " Python's search for garbage. Loading the model and its first call"
        " take 0.7 s, 10,000 files 0.9 s."
    ),
    ("memory-once", "the seed's script with its workers"): (
        "TensorFlow and Keras, imported, have 420 MiB before anything is read"
        " (310 of them are TensorFlow's library), the images 150; matplotlib"
        " and the report come last. All of the script's processes share one"
        " PyTorch and one copy of the images: 500 MiB in all. What the"
        " processes of each side have in themselves is the row above."
    ),
    ("everything-on", "all off"): (
        "A checkpoint every 100 steps is one every 70 to 90 ms. Of these, 1.2"
        " to 1.9 ms read the variables and hand them over, 1.2 are the lines"
        " and the log, and 1 to 3 begin the next block, whose first step finds"
        " the threads asleep; the writing, 6 ms of a core, runs beside the"
        " training in the time that this leaves. With a checkpoint a"
        " minute, which is the default, there is none of this."
    ),
}
