"""The paper's mathematics, apart from any optimizer: Gaussian inference, and Table 1's covariances."""
