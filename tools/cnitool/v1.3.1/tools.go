//go:build tools

// Package cnitool pins cnitool, which calls CNI plugins as container runtimes do.
package cnitool

import (
	_ "github.com/containernetworking/cni/cnitool"
)
