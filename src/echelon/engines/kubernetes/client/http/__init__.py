"""HTTP to the API server: requests, connections that stay, proxies, and every refusal as an error of ours."""
