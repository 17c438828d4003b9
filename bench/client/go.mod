module netloom.dev/bench/client

go 1.21
