//go:build tools

// Package gobgp pins the GoBGP daemon and its client that the tests run against.
package gobgp

import (
	_ "github.com/osrg/gobgp/v4/cmd/gobgp"
	_ "github.com/osrg/gobgp/v4/cmd/gobgpd"
)
