//go:build unix && !linux

package machine

const mapNoReserve = 0
