"""torch's DataLoader over a ``TokenDataset``, for the tests of both."""

import pytest
import torch

MARKS = [
    pytest.mark.heavy,
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # than it has cores
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),  # threads here, from CPython 3.12 on
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),  # torchdata calls it
]


def through(dataset, workers=0, context=None, **settings):
    """A DataLoader over the dataset."""
    return torch.utils.data.DataLoader(
        dataset, batch_size=None, num_workers=workers, multiprocessing_context=context, **settings
    )
