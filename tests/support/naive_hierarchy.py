"""The tree of classes and its margins, by loops over images and classes."""

import numpy as np


def naive_tree(rows, labels, levels):
    """Return d, s, d_0 to d_L and d_H of the classes in ascending order, in float64."""
    rows = np.asarray(rows, dtype="float64")
    rows = np.array([r / (np.linalg.norm(r) or 1.0) for r in rows])
    members = [np.flatnonzero(labels == name) for name in np.unique(labels)]
    far = [[np.sum((a - b) ** 2) for b in rows] for a in rows]
    d = np.array(
        [[np.mean([far[i][j] for i in p for j in q]) for q in members] for p in members]
    )
    pairs = [[far[i][j] for i in c for j in c if i != j] for c in members]
    smallest = np.mean([np.mean(p) for p in pairs if p]) if any(pairs) else 0.0
    s = np.array([np.mean(p) if p else smallest for p in pairs])
    thresholds = [smallest + level * (4 - smallest) / levels for level in range(levels)]
    thresholds.append(4.0)
    merging = np.full(d.shape, 4.0)
    for threshold in reversed(thresholds[:-1]):
        node = list(range(len(members)))
        for _ in members:  # as often as there are classes: by way of others
            for a in range(len(members)):
                for b in range(len(members)):
                    if a != b and d[a, b] < threshold:
                        node[a] = node[b] = min(node[a], node[b])
        node = np.array(node)
        merging[node[:, None] == node] = threshold
    return d, s, np.array(thresholds), merging
