"""What a chapter is made of: claims with the programs that decide them, questions, and the beliefs they test."""
