"""The examples in the order in which a newcomer would read them."""

PLACES = (
    "plot_sequence_vectors",
    "plot_kernels_against_linear",
    "plot_certificate",
    "plot_calibration",
    "plot_partial_labels",
    "plot_active_learning",
    "plot_explain_decision",
    "plot_frozen_embeddings",
    "plot_sensor_segmentation",
    "plot_multilabel_graph",
    "plot_grid",
    "plot_skip_chain",
)


class Order:
    """A key for sphinx-gallery: those that are not listed come last, by name."""

    def __init__(self, src_dir: str) -> None:
        self.src_dir = src_dir

    def __call__(self, filename: str) -> tuple[int, str]:
        """Return the place of an example."""
        name = filename.removesuffix(".py")
        return (PLACES.index(name) if name in PLACES else len(PLACES), name)

    def __repr__(self) -> str:
        return "Order()"
