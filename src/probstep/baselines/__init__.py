"""The methods this one is measured against, re-implemented: one paper, one file.

Every file is named by its paper's key and holds one `torch.optim.Optimizer` (or a schedule, or an
averaging rule) with its reference, formulas, defaults, and what differs from the publication.
Learned optimizers (Andrychowicz et al., 2016, arXiv:1606.04474) are left out: they are networks to
be trained on other problems first, not rules with defaults. Rprop and Adadelta are torch's own.
"""
