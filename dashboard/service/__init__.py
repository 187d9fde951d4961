"""The service that the API and the pages share."""
