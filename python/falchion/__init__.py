from falchion._fal import version
